"""Commands on runs that are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.audit.made import DAMAGES, copied, make_run
from tools.audit.outcomes import Family, Tried, tried_command

FILES = ("run.json", "results.csv", "claims.json", "figures/F1.json")


def damaged_runs(folder: Path) -> Iterator[Tried]:
    """Commands on damaged runs."""
    sound = make_run(folder / "sound")
    for file in FILES:
        for number, (kind, spoil) in enumerate(DAMAGES.items()):
            place = folder / f"{file.replace('/', '-')}-{number}"
            good, odd = copied(sound, place / "good"), copied(sound, place / "odd")
            spoil(odd / file)
            commands = {
                "list": ("--out", place),
                "compare": (good, odd),
                "merge": (place, "-o", place / "all.csv"),
                "export": (odd, "BERT", place / "model"),
                "figures": (odd, "--format", "svg"),
            }
            for command, arguments in commands.items():
                yield tried_command(f"{command}, {file}: {kind}", command, *arguments)


FAMILIES: tuple[Family, ...] = (damaged_runs,)
