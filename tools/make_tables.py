"""Write files.tsv and copies.tsv from the manifests of mirrors.

    python tools/make_tables.py MANIFEST.jsonl [MANIFEST.jsonl ...]

Every manifest line names one upstream file: dataset (or encoder), url, bytes and sha256 of the uncompressed file,
license. `copies.tsv` gets one row per dataset and pinned repository (source, copy, base URL, licence), `files.tsv` one
row per file (source, copy, path below the base, size, sha256). Archives that their host re-compresses (lines with
`members_sha256`) and releases of packages are left out: they are described by hand in sources.yaml, as is everything a
person should read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent / "dialnb" / "data" / "registry"
PINNED = re.compile(
    r"(?P<base>https://[^/]+/(?P<repository>[^/]+/[^/]+)/(?P<commit>[0-9a-f]{40}|resolve/main)/)(?P<path>.+)"
)

RELEASE = re.compile(r"https://unpkg\.com/[^/]+@\d[\d.]*/.+")


def _parts(url: str) -> dict[str, str]:
    """The repository, commit and path that an address pins."""
    if match := PINNED.fullmatch(url):
        return match.groupdict()
    sys.exit(f"{url} pins no commit of a repository: mirror a file at a commit, or a release")


def make_tables(manifests: Iterable[Path], folder: Path = HERE) -> tuple[int, int]:
    """Write both tables into `folder`; returns the numbers of copies and files."""
    rows = [json.loads(line) for manifest in manifests for line in manifest.read_text("utf-8").splitlines()]
    rows = [{"dataset": row.get("encoder")} | row for row in rows]
    rows = [row for row in rows if "members_sha256" not in row and not RELEASE.fullmatch(row["url"])]
    rows = [row | _parts(row["url"]) for row in rows]
    commits: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        commits.setdefault((row["dataset"], row["repository"]), set()).add(row["commit"])
    copies, files = set(), []
    for row in rows:
        several = len(commits[row["dataset"], row["repository"]]) > 1
        copy = row["repository"] + (f"@{row['commit'][:7]}" if several else "")
        copies.add((row["dataset"], copy, row["base"], row["license"]))
        files.append((row["dataset"], copy, row["path"], str(row["bytes"]), row["sha256"]))
    for name, header, table in [
        ("copies.tsv", ("source", "copy", "base", "licence"), copies),
        ("files.tsv", ("source", "copy", "path", "size", "sha256"), files),
    ]:
        lines = ["\t".join(header), *("\t".join(row) for row in sorted(table))]
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    return len(copies), len(files)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print("{} copies, {} files".format(*make_tables(map(Path, sys.argv[1:]))))
