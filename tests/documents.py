"""What the pages tell their readers to type: collected from the text, with the notes on how a test runs it.

An example is a fenced block, or the commands that a piece of prose (lines without an empty one between them) names in
`code`: words that begin with one of ``PROGRAMS`` or with `.venv/` and go on (variables may stand before them), and
options of the command line alone.
A note is an HTML comment below what it speaks of, and no reader sees it:

    <!-- test:
    cp dialnb/assets/examples/utterances.csv shop.csv
    dialnb matrix => ... --dry-run
    -->

Where there is `=>`, the right side is run in place of the left side; `...` stands for the left side. Of a shell example
the left side is a whole command, of a Python example any part. A right side that begins with `!` has to end with exit
code 1: what it asks for is not available, and its names and options are right. Other lines are run before the example.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("conda", "dialnb", "jupyter", "make", "papermill", "pip", "python", "python3", "snakemake", "torchrun")
LANGUAGES = ("sh", "python")


class PageError(Exception):
    """A page that cannot be tested as it stands."""


@dataclass(frozen=True)
class Example:
    """What a reader is told to type: the page, its language (`sh`, `python` or `options`), its parts, its note."""

    page: str
    language: str
    parts: tuple[str, ...]
    note: tuple[str, ...] = ()

    @property
    def before(self) -> list[str]:
        """What a test runs first."""
        return [line for line in self.note if "=>" not in line]

    @property
    def changes(self) -> dict[str, str]:
        """What a test runs, by what stands on the page."""
        pairs = [[side.strip() for side in line.split("=>", 1)] for line in self.note if "=>" in line]
        return {written: tested.replace("...", written) for written, tested in pairs}

    def tested(self) -> list[str]:
        """The parts as a test runs them; a change that fits nothing is an error."""
        used, parts = set(), []
        for part in self.parts:
            for written, tested in self.changes.items():
                if written == part if self.language != "python" else written in part:
                    part = part.replace(written, tested)
                    used.add(written)
                    if self.language != "python":
                        break
            parts.append(part)
        if left := [written for written in self.changes if written not in used]:
            raise PageError(f"{self.page}: a note speaks of {left[0]!r}, which does not stand above it")
        return parts

    def __str__(self) -> str:
        return f"{self.page}: {self.parts[0].splitlines()[0][:60]}"


def commands_of(block: str) -> tuple[str, ...]:
    """The commands of a shell block, without comments; a line that ends with a backslash goes on."""
    lines = block.replace("\\\n", " ").splitlines()
    kept = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines]
    return tuple(line for line in kept if line)


def named_in(prose: str) -> Iterator[tuple[str, str]]:
    """Language and text of what prose names in `code` and readers type."""
    for text in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose):
        text = text.replace("\\|", "|")
        program, _, rest = re.sub(r"^([A-Z_]+=\S+ )+", "", text).partition(" ")
        if rest and (program in PROGRAMS or program.startswith(".venv/")):
            yield "sh", text
        elif re.match(r"--[a-z]", text):
            yield "options", text


def examples(page: str, text: str) -> list[Example]:
    """All examples of a page, each with its note."""
    found: list[Example] = []
    prose: list[str] = []
    lines = iter(text.splitlines())

    def end_of_prose() -> None:
        named = list(named_in("\n".join(prose)))
        prose.clear()
        for language in ("options", "sh"):  # a note speaks of commands
            if parts := dict.fromkeys(part for kind, part in named if kind == language):
                found.append(Example(page, language, tuple(parts)))

    for line in lines:
        if fence := re.match(" {0,3}```(.*)$", line):
            end_of_prose()
            code = textwrap.dedent("\n".join(_until(lines, "```", page)))
            if fence[1] not in LANGUAGES:
                raise PageError(
                    f"{page}: a block must be one of {', '.join(LANGUAGES)}, but here is {fence[1]!r}:\n{code}"
                )
            found.append(Example(page, fence[1], commands_of(code) if fence[1] == "sh" else (code,)))
        elif re.match(" {0,3}<!-- test:", line):
            end_of_prose()
            note = [line.strip().removeprefix("<!-- test:")]
            if not note[0].endswith("-->"):
                note += _until(lines, "-->", page)
            kept = [part.strip().removesuffix("-->").strip() for part in note]
            if not found or found[-1].note:
                raise PageError(f"{page}: a note has no example above it: {kept}")
            found[-1] = Example(page, found[-1].language, found[-1].parts, tuple(filter(None, kept)))
        elif line.strip():
            prose.append(line)
        else:
            end_of_prose()
    end_of_prose()
    return found


def _until(lines: Iterator[str], end: str, page: str) -> Iterator[str]:
    for line in lines:
        if line.strip() == end:
            return
        yield line
    raise PageError(f"{page}: {end} is missing")


def collected(root: Path) -> list[Example]:
    """The examples of README, CONTRIBUTING and the pages of the papers."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("papers/*/README.md"))]
    names = {path: path.relative_to(root).as_posix() for path in pages}
    return [found for path, name in names.items() for found in examples(name, path.read_text(encoding="utf-8"))]


def words_of(command: str, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The variables that stand before a command, and its words, with names of files for patterns of them."""
    words = shlex.split(command)
    variables = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    expanded = []
    for word in words:
        matches = sorted(folder.glob(word)) if "*" in word else []
        expanded += [path.relative_to(folder).as_posix() for path in matches] or [word]
    return variables, expanded


def as_main(folder: Path, module: str, arguments: list[str]) -> None:
    """Run a module of the folder as `python -m` does."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def as_script(folder: Path, parts: list[str]) -> None:
    """Run pieces of Python one after the other, in the folder."""
    os.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    for part in parts:
        exec(compile(part, "example", "exec"), names)  # noqa: S102
