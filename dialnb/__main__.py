"""`python -m dialnb` is the same as the command `dialnb`."""

import sys

from dialnb.cli import main

sys.exit(main())
