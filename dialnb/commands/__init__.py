"""The command line, one module per topic, each with its COMMANDS; heavy imports stay inside the functions."""

from __future__ import annotations

from collections.abc import Callable

import click


def count(least: int) -> Callable[[str], int]:
    """Read an option that is a whole number."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise click.BadParameter(f"must be a whole number, at least {least}, but is '{text}'")
        return int(text)

    return number
