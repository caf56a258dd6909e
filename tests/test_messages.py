"""What the package tells a person at a shell: commands that exist, sentences instead of Python."""

from __future__ import annotations

import ast
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dialnb import cli, errors
from dialnb.errors import DataError, in_words

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "dialnb").rglob("*.py"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "papers").glob("**/*.md"), *(ROOT / "notebooks").glob("*")]
FAMILY = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}


def named_commands() -> Iterator[tuple[str, str, str]]:
    """(file, command, action) of every command that a string of the package or the code in a page names."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for match in re.finditer(r"(?:^|[`'(])dialnb ([a-z]+)(?: ([a-z]+))?(?=$|[^a-z ]| [^a-z])", node.value):
                    yield path.name, match[1], match[2] or ""
    for path in (path for path in PAGES if path.is_file()):
        for place, part in enumerate(path.read_text(encoding="utf-8").split("```")):
            for match in re.finditer(rf"{'^' if place % 2 else '`'}dialnb ([a-z]+)(?: ([a-z]+))?", part, re.M):
                yield path.name, match[1], match[2] or ""


def test_every_command_that_is_named_anywhere_exists():
    known, named = cli.dialnb.commands, set(named_commands())
    assert {"corpus", "list", "run"} <= {command for _, command, _ in named}
    assert not {entry for entry in named if entry[1] not in known}
    actions = {name: getattr(command, "commands", {}) for name, command in known.items()}
    assert not {entry for entry in named if entry[2] and actions[entry[1]] and entry[2] not in actions[entry[1]]}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "dialnb").as_posix())
def test_no_message_shows_a_list_or_a_tuple_as_python_writes_it(path):
    raised = [node.exc for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Raise)]
    calls = [c for c in raised if isinstance(c, ast.Call) and isinstance(c.func, ast.Name) and c.func.id in FAMILY]
    shown = [node.value for call in calls for node in ast.walk(call) if isinstance(node, ast.FormattedValue)]
    makers = ("list", "sorted", "tuple", "set", "dict")
    bad = [v for v in shown if isinstance(v, ast.Call) and isinstance(v.func, ast.Name) and v.func.id in makers]
    assert not [ast.unparse(value) for value in bad if "shape" not in ast.unparse(value)]  # a shape is mathematics


def test_an_error_in_words_names_the_place_and_no_number():
    assert in_words(OSError(errno.ENOSPC, "No space left on device", "runs")) == "runs: no space left on device"
    assert in_words(DataError("a sentence")) == "a sentence"
    assert in_words(KeyError("x")) == "KeyError: 'x'"


def test_an_error_of_the_system_ends_a_command_with_a_sentence(monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "table.csv")

    monkeypatch.setattr("dialnb.runs.profiles.known_papers", full)
    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err == "dialnb: table.csv: no space left on device\n"
