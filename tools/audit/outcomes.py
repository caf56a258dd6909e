"""What a fault is, and what can become of it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dialnb.cli import main
from dialnb.errors import DialnbError

REFUSED, CARD, SOUND = "a sentence", "a card", "no harm"
"""An error of ours in words; a card in the report; read as if nothing were wrong, with nothing of it that acts."""
WRONG = "wrong"
OUTCOMES = (REFUSED, CARD, SOUND, WRONG)


@dataclass(frozen=True)
class Tried:
    """One fault, what became of it, and the details of what went wrong."""

    fault: str
    outcome: str
    detail: str = ""


Family = Callable[[Path], Iterator[Tried]]
"""Faults of one kind, tried within an empty folder of their own; the first line of its docstring names it."""


def tried(fault: str, work: Callable[[], object]) -> Tried:
    """What becomes of a call: an error of ours is a sentence, any other is wrong."""
    try:
        work()
    except DialnbError as error:
        return Tried(fault, REFUSED, str(error))
    except BaseException as error:
        return Tried(fault, WRONG, f"{type(error).__name__}: {error}")
    return Tried(fault, SOUND)


def tried_command(fault: str, *arguments: object) -> Tried:
    """What becomes of a command: a failure says one sentence, in one line without what moves a cursor."""
    words, complaints = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(complaints):
            code = main([str(argument) for argument in arguments])
    except BaseException as error:
        return Tried(fault, WRONG, f"{type(error).__name__}: {error}")
    lines = complaints.getvalue().splitlines()
    if "\x1b" in words.getvalue() + complaints.getvalue():
        return Tried(fault, WRONG, "an escape reached the terminal")
    if code == 0:
        return Tried(fault, SOUND)
    is_sentence = len(lines) == 1 and lines[0].startswith("dialnb: ") and len(lines[0]) < 1_500
    return Tried(fault, REFUSED if is_sentence else WRONG, " / ".join(lines)[:500])
