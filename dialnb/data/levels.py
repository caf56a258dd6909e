"""Where evaluation data may come from: what `papers/<slug>/data.yaml` names, and the best of it within reach."""

import re
from collections.abc import Iterable
from pathlib import Path

from dialnb.data.datasets import Dataset, load
from dialnb.errors import Offline, check_known, first_sentence
from dialnb.files import project_root, read_yaml

LEVELS = ("bundled", "sources", "official")
"""Where evaluation data may come from: the package, public copies as well, the papers' own releases as well."""

CHOICE = re.compile(
    r"(?:(?P<level>bundled|sources|official) )?(?P<name>[^:\[]+?)(?::(?P<variant>[^\[]+?))?(?:\[::(?P<step>\d+)\])?"
    r"(?: as (?P<label>.+))?"
)

Found = tuple[dict[str, Dataset], dict[str, str]]
"""Datasets by label, and why others cannot be had."""


def named_data(slug: str, name: str, level: str, root: Path | None = None) -> Found:
    """What the `data.yaml` of a paper calls ``name``, at a level of data."""
    known = read_yaml(project_root(root) / "papers" / slug / "data.yaml")
    check_known(f"data in data.yaml of {slug}", name, known)
    return choose_datasets(known[name], level)


def choose_datasets(entries: Iterable[str | list[str]], level: str) -> Found:
    """Load what an entry of `data.yaml` names, and say of what cannot be had why not.

    Each entry is a dataset, or several of which the first is taken that the ``level`` admits and that is there: the
    paper's own data come first and what stands in for them last. One is written as
    ``[LEVEL] NAME[:VARIANT][[::STEP]] [as LABEL]``; without a level it is ``bundled`` or, of other sources,
    ``sources``; every STEP-th record is taken; rows carry the label.
    """
    check_known("level of data", level, LEVELS)
    found, lacking = {}, {}
    for entry in entries:
        choices = [CHOICE.fullmatch(text) for text in ([entry] if isinstance(entry, str) else entry)]
        wanted = " or ".join(dict.fromkeys(choice["name"] for choice in choices))
        reason = f"needs {wanted}, which is not bundled: profile 'gpu', or data={_level(choices[-1])}"
        for choice in choices:
            if LEVELS.index(_level(choice)) <= LEVELS.index(level):
                try:
                    dataset = load(choice["name"], choice["variant"])
                except Offline as error:
                    reason = first_sentence(error)
                    continue
                found[_label(choice)] = dataset[:: int(choice["step"] or 1)]
                break
        else:
            lacking[_label(choices[0])] = reason
    return found, lacking


def _level(choice: re.Match) -> str:
    return choice["level"] or ("bundled" if choice["name"].startswith("bundled/") else "sources")


def _label(choice: re.Match) -> str:
    return choice["label"] or choice["name"].removeprefix("bundled/")
