"""Committed notebooks are clean: no outputs, no execution counts, no metadata but the few fields that mean something.

Executed copies live under `runs/`. `python -m dialnb.notebooks notebooks` checks, `--fix` strips in place.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NOTEBOOK_METADATA = {"kernelspec", "language_info"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python"}
CELL_METADATA = {"tags"}


def clean(notebook: dict[str, Any]) -> dict[str, Any]:
    """A copy of the notebook as it should be committed; cleaning a clean notebook changes nothing."""
    cells = []
    for cell in notebook["cells"]:
        kept = {name: value for name, value in cell.get("metadata", {}).items() if name in CELL_METADATA}
        cell = {**cell, "metadata": kept}
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    return {**notebook, "cells": cells, "metadata": {"kernelspec": KERNEL, "language_info": LANGUAGE}}


def problems(notebook: dict[str, Any]) -> list[str]:
    """What keeps a notebook from being clean, one sentence per finding."""
    found = []
    metadata = notebook.get("metadata", {})
    if stray := sorted(set(metadata) - NOTEBOOK_METADATA):
        found.append(f"stray notebook metadata: {', '.join(stray)}")
    if metadata.get("kernelspec") != KERNEL or metadata.get("language_info") != LANGUAGE:
        found.append(f"kernelspec must be {KERNEL} and language_info {LANGUAGE}")
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell.get("outputs"):
            found.append(f"cell {number} carries outputs")
        if cell.get("execution_count") is not None:
            found.append(f"cell {number} carries an execution count")
        if stray := sorted(set(cell.get("metadata", {})) - CELL_METADATA):
            found.append(f"cell {number} carries stray metadata: {', '.join(stray)}")
    return found


def find_notebooks(paths: Iterable[Path]) -> list[Path]:
    """The notebooks among files and folders, without the copies that Jupyter keeps in checkpoint folders."""
    found = [file for path in paths for file in (path.rglob("*.ipynb") if path.is_dir() else [path])]
    return sorted(file for file in found if ".ipynb_checkpoints" not in file.parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Check (or, with `--fix`, strip) notebooks; exit code 1 when a notebook is not clean."""
    parser = argparse.ArgumentParser(prog="python -m dialnb.notebooks", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="notebooks, or folders that hold them")
    parser.add_argument("--fix", action="store_true", help="strip in place instead of complaining")
    options = parser.parse_args(argv)
    if missing := [str(path) for path in options.paths if not path.exists()]:
        parser.error(f"expected notebooks or folders, found nothing at {', '.join(missing)}")
    files, dirty = find_notebooks(options.paths), 0
    for file in files:
        notebook = json.loads(file.read_text(encoding="utf-8"))
        found = problems(notebook)
        if found and options.fix:
            file.write_text(json.dumps(clean(notebook), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{file}: stripped")
        elif found:
            dirty += 1
            print("\n".join(f"{file}: {problem}" for problem in found), file=sys.stderr)
    if dirty:
        print("Strip them with: make format (or python -m dialnb.notebooks --fix notebooks)", file=sys.stderr)
    else:
        print(f"{len(files)} notebook{'' if len(files) == 1 else 's'} clean")
    return 1 if dirty else 0


if __name__ == "__main__":
    sys.exit(main())
