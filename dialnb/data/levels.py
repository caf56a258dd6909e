"""Where evaluation data may come from, and the best of it that is within reach."""

from __future__ import annotations

from dialnb.data.datasets import Dataset, load
from dialnb.errors import Offline, UnknownName

LEVELS = ("bundled", "sources", "official")
"""Where evaluation data may come from: the package, public copies as well, the papers' own releases as well."""


def find(data: str, *choices: tuple[str, str, str | None]) -> Dataset:
    """The first of (level, dataset, variant) that ``data`` admits and that can be had here.

    The paper's own data come first and what stands in for them last, so a run says by its dataset what it used.
    """
    if data not in LEVELS:
        raise UnknownName("level of data", data, LEVELS)
    admitted = [choice for choice in choices if LEVELS.index(choice[0]) <= LEVELS.index(data)]
    if not admitted:
        wanted = " or ".join(dict.fromkeys(name for _, name, _ in choices))
        raise Offline(f"needs {wanted}, which is not bundled: profile 'gpu', or data={choices[-1][0]}")
    for _, name, variant in admitted[:-1]:
        try:
            return load(name, variant)
        except Offline:
            continue
    return load(*admitted[-1][1:])
