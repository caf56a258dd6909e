"""Where bytes come from: one `Source` per dataset or encoder that the five papers name, with licence, citation and
hashed files.

The registry is data, in `dialnb/data/registry/`: `sources.yaml` and `encoders.yaml` are written by hand (papers and
tables, licence, citation, coverage, official files that could not be checked); `copies.tsv` and `files.tsv`
list the pinned copies and their files; `counts.yaml` holds what is printed about their sizes, `collections.yaml` which
datasets make up a corpus.
"""

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from dialnb.data.records import Texts
from dialnb.errors import UnknownName, check_known
from dialnb.files import Values, read_yaml

DATASET = "dataset"

REGISTRY = files("dialnb.data") / "registry"


@dataclass(frozen=True)
class SourceFile:
    """One file of a source. `sha256` and `size` are of the uncompressed bytes; both are empty if nobody checked them.

    Hosts re-compress archives at will, so an archive may instead be known by its members: `members_sha256` is the
    sha256 over the sorted lines "name TAB sha256-of-the-member NEWLINE" of the members that match `members`, named
    without their common top folder. An empty `urls` means that the file must be fetched by hand (see `note`).
    A file that nobody could check is read by one `variant` alone, or by the official ones where none is named.
    """

    key: str
    urls: Texts = ()
    sha256: str = ""
    size: int = 0
    licence: str = ""
    members: Texts = ()
    members_sha256: str = ""
    note: str = ""
    variant: str = ""

    @property
    def verified(self) -> bool:
        """Whether these bytes were checked when the registry was written."""
        return bool(self.sha256 or self.members_sha256)

    def needed_by(self, variant: str) -> bool:
        """Whether this variant is read from it; of files that were checked all may be."""
        return self.verified or (variant == self.variant if self.variant else "official" in variant)


@dataclass(frozen=True)
class Source:
    """One dataset or encoder: who uses it, under which terms, how much of it can be had, and its files.

    `availability` says what the checked files amount to; of an encoder also that it is had from the hub, or comes with
    the package. `packages` of the Python package index hold a zip of the files in pieces.
    """

    name: str
    title: str
    papers: Texts
    licence: str
    redistributable: bool | None = None
    citation: str = ""
    homepage: str = ""
    availability: str = ""
    coverage: str = ""
    note: str = ""
    files: tuple[SourceFile, ...] = ()
    kind: str = DATASET
    language: str = ""
    packages: Texts = ()

    def file(self, key: str) -> SourceFile:
        """The file with this key.

        >>> get_source("clinc150").file("data/data_full.json").size
        2495390
        """
        files = {file.key: file for file in self.files}
        check_known(f"file of {self.name}", key, files)
        return files[key]


def get_source(name: str) -> Source:
    """The source of that name, in any casing.

    >>> get_source("clinc150").licence
    'CC-BY-3.0'
    """
    registry = load_registry()
    return registry[known_name("dataset or encoder", name, registry)]


def known_name(kind: str, name: str, known: Collection[str]) -> str:
    """The one of the known names that is this one, in whatever casing."""
    for spelled in known:
        if spelled.casefold() == name.casefold():
            return spelled
    raise UnknownName(kind, name, known)


@cache
def load_registry() -> dict[str, Source]:
    """Every source by name: datasets in the order of sources.yaml, then encoders in that of encoders.yaml."""
    entries = read_registry("sources") | read_registry("encoders")
    registry, pinned = {}, _pinned_files(entries)
    for name, entry in entries.items():
        others = [SourceFile(**{"licence": entry["licence"], **_tuples(file)}) for file in entry.pop("files", ())]
        about = {field: value for field, value in entry.items() if field != "official"}
        files = (*pinned.get(name, ()), *others)
        registry[name] = Source(**{"papers": (), **_tuples(about), "name": name, "files": files})
    return registry


def _tuples(entry: Values) -> Values:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


def _pinned_files(entries: Values) -> dict[str, list[SourceFile]]:
    """The rows of files.tsv by source; an official URL of sources.yaml comes before the pinned copy."""
    copies = {(row["source"], row["copy"]): row for row in _rows("copies.tsv")}
    pinned: dict[str, list[SourceFile]] = {}
    for row in _rows("files.tsv"):
        name, key = row["source"], unquote(row["path"])
        copy = copies[name, row["copy"]]
        urls = [copy["base"] + row["path"]]
        if official := entries[name].get("official", {}).get(key):
            urls.insert(0, official)
        file = SourceFile(key, tuple(urls), row["sha256"], int(row["size"]), copy["licence"])
        pinned.setdefault(name, []).append(file)
    return pinned


def _rows(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader((REGISTRY / name).read_text("utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)


def read_registry(name: str) -> Any:
    """What a YAML file of the registry says."""
    return read_yaml(REGISTRY / f"{name}.yaml")
