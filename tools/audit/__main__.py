"""Try the faults of the audit again and print what became of them: `python -m tools.audit [WORD]...`.

Prints a table in Markdown, a row for each family (those whose name holds one of the words, if any are given), and what
is wrong below it; the exit code is 1 if something is. A module of this folder has its families in a tuple `FAMILIES`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.audit import commands, disk, encoders, mirrors, reports
from tools.audit.outcomes import OUTCOMES, WRONG, Family

MODULES = (reports, commands, encoders, disk, mirrors)
FAMILIES: tuple[Family, ...] = tuple(family for module in MODULES for family in module.FAMILIES)


def audit(words: Sequence[str] = ()) -> int:
    """Try every family; returns the exit code."""
    print(f"| family | faults | {' | '.join(OUTCOMES)} |\n|---|{'---:|' * (len(OUTCOMES) + 1)}")
    wrong, began = [], time.monotonic()
    for family in FAMILIES:
        name = (family.__doc__ or family.__name__).splitlines()[0].rstrip(".")
        if words and not any(word in name.lower() for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            results = list(family(Path(folder)))
        counts = Counter(result.outcome for result in results)
        row = " | ".join(str(counts[outcome] or "–") for outcome in OUTCOMES)
        print(f"| {name} | {len(results)} | {row} |", flush=True)
        wrong += [f"{name}: {result.fault}: {result.detail}" for result in results if result.outcome == WRONG]
    print(f"\n{time.monotonic() - began:.0f} s", *wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(audit([word.lower() for word in sys.argv[1:]]))
