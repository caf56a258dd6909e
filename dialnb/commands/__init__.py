"""The command line, one module per topic, each with its COMMANDS; heavy imports stay inside the functions."""

from collections.abc import Callable
from pathlib import Path

from click import option

JSON = option("--json", "as_json", is_flag=True, help="print JSON instead of a table")
PROJECT = option("--project", "root", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")


def together(*options: Callable) -> Callable:
    """Options that several commands take, as one."""

    def add(function: Callable) -> Callable:
        for one in reversed(options):
            function = one(function)
        return function

    return add
