"""The command `dialnb`: its sub-commands are in `dialnb.commands`; errors become sentences and exit codes.

Exit codes: 0 done; 1 something failed (a bad file, no network, a claim that cannot be judged); 2 the command itself is
wrong (an unknown name or option, an impossible value); 130 interrupted.
"""

import sys
import warnings
from collections.abc import Sequence

import click

from dialnb import __version__
from dialnb.commands import data, engine, runs, tools
from dialnb.errors import BadParameter, DialnbError, UnknownName, in_words


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="dialnb", message="%(prog)s %(version)s")
def dialnb() -> None:
    """Five papers on dialogue representation learning, reproduced in notebooks."""


for module in (runs, tools, data, engine):
    for command in module.COMMANDS:
        dialnb.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code.

    >>> main(["data", "info", "CLINC150"])        # doctest: +SKIP
    0
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # of a terminal that cannot show every letter
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _complain(message)
            code = dialnb.main(arguments and list(arguments), prog_name="dialnb", standalone_mode=False)
            return code or 0
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except DialnbError as error:
        _complain(error)
        return 2 if isinstance(error, UnknownName | BadParameter) else 1
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return 130
    except OSError as error:
        _complain(in_words(error))
        return 1


def _complain(sentence: object) -> None:
    print(f"dialnb: {sentence}", file=sys.stderr)
