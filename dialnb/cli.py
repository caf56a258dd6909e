"""The command `dialnb`: its sub-commands are in `dialnb.commands`; errors become sentences and exit codes.

Exit codes: 0 done; 1 something failed (a bad file, no network, a claim that cannot be judged); 2 the command itself is
wrong (an unknown name or option, an impossible value); 130 interrupted.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO

import click

from dialnb import __version__
from dialnb.commands import data, engine, runs, tools
from dialnb.errors import BadParameter, DialnbError, UnknownName, in_words, shown


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
    # Before torch is there: threads that wait for each other give their core away soon, for on shared cores it is the
    # other's, and steps were ten times as slow. Kernels and workers of the command inherit it.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # of a terminal that cannot show every letter
    with redirect_stdout(Heard(sys.stdout)) as output, redirect_stderr(Heard(sys.stderr)):
        code = _run(arguments)
        output.flush()
        return code


def _run(arguments: Sequence[str] | None) -> int:
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


class Heard:
    """A stream whose reader may go away (`dialnb run all | head -1`): what nobody reads is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except BrokenPipeError:
            return self._drop(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._drop("")

    def _drop(self, text: str) -> int:
        """Lead the stream, and what waits in its buffer, to nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)
        return len(text)


def _complain(sentence: object) -> None:
    print(f"dialnb: {shown(sentence)}", file=sys.stderr)
