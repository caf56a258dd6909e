"""What a fault is, and what can become of it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dialnb.cli import main
from dialnb.errors import DialnbError

Result = TypeVar("Result")
REFUSED, CARD, AGAIN, SOUND = "a sentence", "a card", "made again", "no harm"
"""An error of ours in words; a card in the report; seen, and made anew; the right result, and nothing that acts."""
WRONG = "wrong"
OUTCOMES = (REFUSED, CARD, AGAIN, SOUND, WRONG)


@dataclass(frozen=True)
class Tried:
    """One fault, what became of it, and the details of what went wrong."""

    fault: str
    outcome: str
    detail: str = ""


Family = Callable[[Path], Iterator[Tried]]
"""Faults of one kind, tried within an empty folder of their own; the first line of its docstring names it."""


def always_sound(_: object) -> str:
    """Whatever is given is right."""
    return SOUND


def tried(fault: str, work: Callable[[], Result], outcome: Callable[[Result], str] = always_sound) -> Tried:
    """What becomes of a call: an error of ours is a sentence, any other is wrong; a result is judged by `outcome`."""
    try:
        became = outcome(work())
    except DialnbError as error:
        return Tried(fault, REFUSED if str(error).isprintable() else WRONG, str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it is, it should have been a sentence
        return Tried(fault, WRONG, f"{type(error).__name__}: {str(error)[:500]}")
    return Tried(fault, became, "another result, without a word" if became == WRONG else "")


def tried_command(fault: str, *arguments: object) -> Tried:
    """What becomes of a command: a failure says one sentence, in one line without what moves a cursor."""
    words, complaints = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(complaints):
            code = main([str(argument) for argument in arguments])
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Tried(fault, WRONG, f"{type(error).__name__}: {error}")
    lines = complaints.getvalue().splitlines()
    if "\x1b" in words.getvalue() + complaints.getvalue():
        return Tried(fault, WRONG, "an escape reached the terminal")
    if code == 0:
        return Tried(fault, SOUND)
    is_sentence = len(lines) == 1 and lines[0].startswith("dialnb: ") and len(lines[0]) < 1_500
    return Tried(fault, REFUSED if is_sentence else WRONG, " / ".join(lines)[:500])
