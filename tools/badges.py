"""What a release adds to README and notebooks: badges for Colab and Binder, and what the notebooks install there.

    python -m tools.badges OWNER/NAME v0.1.0 > notes.md

The repository does not know where it will be published; the release workflow does, and tags a commit that says so.
Only the standard library is used, since it runs before anything is installed. It prints the notes of the release.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote

COLAB = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{repository}/blob/{tag}/{path})"
)
BINDER = (
    "[![Open in Binder](https://mybinder.org/badge_logo.svg)]"
    "(https://mybinder.org/v2/gh/{repository}/{tag}?labpath={quoted})"
)
WHEEL = "https://github.com/{repository}/releases/download/{tag}/dialnb-{version}-py3-none-any.whl"

IN_README = re.compile(r"(?<=<!-- badges -->\n).*?(?=\n<!-- end of badges -->)", re.DOTALL)
BELOW_TITLE = re.compile(r"\A(# .+\n)(?:\n\[!\[.*\n)?")
IF_MISSING = re.compile(r'(?<=if find_spec\("dialnb"\) is None:\n    ).*\Z', re.DOTALL)


def badges(repository: str, tag: str, path: str) -> tuple[str, str]:
    """The badges that open one notebook of a release."""
    words = {"repository": repository, "tag": tag, "path": path, "quoted": quote(path, safe="")}
    return COLAB.format(**words), BINDER.format(**words)


def put(pattern: re.Pattern[str], new: str, text: str, place: str) -> str:
    """Replace the one match of a pattern; a text that has none, or several, is an error."""
    changed, count = pattern.subn(new, text)
    if count != 1:
        sys.exit(f"{place} has {count} places for what a release adds, expected 1: see tools/badges.py")
    return changed


def with_address(text: str, repository: str, tag: str, path: str) -> str:
    """A notebook with badges below its title, and a cell that installs the wheel of the release."""
    notebook = json.loads(text)
    wheel = WHEEL.format(repository=repository, tag=tag, version=tag.removeprefix("v"))
    title = notebook["cells"][0]
    (install,) = [cell for cell in notebook["cells"] if cell["id"].endswith("-install")]
    for cell, pattern, new in (
        (title, BELOW_TITLE, rf"\1\n{' '.join(badges(repository, tag, path))}\n"),
        (install, IF_MISSING, f"%pip install -q {wheel}"),
    ):
        cell["source"] = put(pattern, new, "".join(cell["source"]), path).splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def write_address(root: Path, repository: str, tag: str) -> str:
    """Write the address into README and all notebooks of a checkout; returns the table of badges."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        sys.exit(f"expected a repository as OWNER/NAME, found {repository!r}")
    if tag != f"v{version}":
        sys.exit(f"pyproject.toml has version {version}: the tag must be v{version}, found {tag!r}")
    texts, rows = {}, ["| notebook | in Colab | in Binder |", "|---|---|---|"]
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        path = f"notebooks/{notebook.name}"
        texts[notebook] = with_address(notebook.read_text(encoding="utf-8"), repository, tag, path)
        rows.append(f"| `{notebook.stem}` | {' | '.join(badges(repository, tag, path))} |")
    table, readme = "\n".join(rows), root / "README.md"
    texts[readme] = put(IN_README, f"\n{table}\n", readme.read_text(encoding="utf-8"), readme.name)
    for file, text in texts.items():  # all or nothing: whatever was wrong has been said by now
        file.write_text(text, encoding="utf-8", newline="\n")
    return table


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(write_address(Path.cwd(), *sys.argv[1:]))
