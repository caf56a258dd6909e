"""`python -m dialnb.plots FOLDER` draws the picture of the README."""

import sys
from pathlib import Path

from dialnb.plots import overview, save

for written in save(overview(), Path(sys.argv[1]) / "overview"):
    print(written)
