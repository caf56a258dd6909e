"""The command line, one module per topic: `register(subparsers)`, with heavy imports inside the functions."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable


def count(least: int) -> Callable[[str], int]:
    """Read an option that is a whole number."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise ArgumentTypeError(f"must be a whole number, at least {least}, but is '{text}'")
        return value

    return read
