"""The command `dialnb`: finds its sub-commands in `dialnb.commands`, and turns errors into sentences and exit codes.

Exit codes: 0 done; 1 something failed (a bad file, no network, a claim that cannot be judged); 2 the command itself is
wrong (an unknown name or option, an impossible value); 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from dialnb import __version__
from dialnb.errors import BadParameter, DialnbError, UnknownName, in_words

COMMANDS = ("init", "run", "report", "tools", "data", "engine", "diaeval", "reproduce", "matrix")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code.

    >>> main(["data", "info", "CLINC150"])        # doctest: +SKIP
    0
    """
    arguments = make_parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            return arguments.run(arguments)
    except DialnbError as error:
        print(f"dialnb: {error}", file=sys.stderr)
        return 2 if isinstance(error, UnknownName | BadParameter) else 1
    except KeyboardInterrupt:
        print("dialnb: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"dialnb: {in_words(error)}", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """The command line with all its sub-commands."""
    parser = argparse.ArgumentParser(
        prog="dialnb", description="Five papers on dialogue representation learning, reproduced in notebooks."
    )
    parser.add_argument("--version", action="version", version=f"dialnb {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"dialnb.commands.{name}").register(subparsers)
    return parser


def _say_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"dialnb: {message}", file=sys.stderr)
