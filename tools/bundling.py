"""How the bundled data are made: a recipe per dataset, applied to the sources, the same bytes every time.

    python -m tools.bundling dialnb/assets/data

Only datasets whose licence allows redistribution are taken; a recipe whose source does not say so must state the
licence of the part that it takes. Sampling goes by the sha256 of a record's id, so it needs no random numbers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import lzma
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialnb.data.datasets import load
from dialnb.data.readers import get_reader
from dialnb.data.records import Dialogue, Record
from dialnb.data.sources import get_source
from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

CREATIVE_COMMONS = "https://creativecommons.org/licenses"
LINKS = {
    "CC-BY-3.0": f"{CREATIVE_COMMONS}/by/3.0/",
    "CC-BY-4.0": f"{CREATIVE_COMMONS}/by/4.0/",
    "CC-BY-SA-4.0": f"{CREATIVE_COMMONS}/by-sa/4.0/",
    "CC0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "CDLA-Sharing-1.0": "https://cdla.dev/sharing-1-0/",
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "MIT": "https://opensource.org/license/mit",
    "BSD-3-Clause": "https://opensource.org/license/bsd-3-clause",
}
SHARE_ALIKE = ("CC-BY-SA-4.0", "CDLA-Sharing-1.0")
Step = Callable[[list], list]


def encode(value: Any) -> Any:
    """A record as plain lists: fields in order, those at the end that have their default value left out.

    >>> from dialnb.data.records import Utterance
    >>> encode(Utterance("user", "hello"))
    ['user', 'hello']
    """
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = dataclasses.fields(value)
    cells = [getattr(value, field.name) for field in fields]
    while cells and cells[-1] == fields[len(cells) - 1].default:
        cells.pop()
    return [encode(cell) for cell in cells]


def to_lines(records: Iterable[Record]) -> bytes:
    """Records as JSON lines."""
    lines = [json.dumps(encode(record), ensure_ascii=False, separators=(",", ":")) for record in records]
    return "".join(f"{line}\n" for line in lines).encode()


@dataclass(frozen=True)
class Recipe:
    """What to take of one dataset: variants, steps that each map a list of records to another, and words about it."""

    name: str
    changes: str
    variants: tuple[str, ...] = ("",)
    steps: tuple[Step, ...] = ()
    licence: str = ""
    notice: str = ""
    derived: tuple[str, ...] = ()


def rank(dialogue: Dialogue) -> str:
    """A place in an order that has nothing to do with the dialogue, but is always the same for it."""
    return hashlib.sha256(f"{dialogue.split}/{dialogue.id}".encode()).hexdigest()


def spread(wanted: int) -> Step:
    """Keep this many dialogues, evenly over splits and combinations of domains: one of each in turn, by rank."""

    def step(dialogues: list[Dialogue]) -> list[Dialogue]:
        groups: dict[Any, list[Dialogue]] = {}
        for dialogue in sorted(dialogues, key=rank):
            groups.setdefault((dialogue.split, dialogue.domains), []).append(dialogue)
        turns = sorted((place, rank(item)) for group in groups.values() for place, item in enumerate(group))
        kept = {key for _, key in turns[:wanted]}
        return [dialogue for dialogue in dialogues if rank(dialogue) in kept]

    return step


def annotated(dialogues: list[Dialogue]) -> list[Dialogue]:
    """Only dialogues whose every utterance has an act."""
    return [dialogue for dialogue in dialogues if all(item.acts for item in dialogue.utterances)]


def without_slots(dialogues: list[Dialogue]) -> list[Dialogue]:
    return [replace(d, utterances=tuple(replace(item, slots=()) for item in d.utterances)) for d in dialogues]


def split_by_rank(dialogues: list[Dialogue]) -> list[Dialogue]:
    """Give splits to a corpus that has none: about 80 % train, 10 % dev, 10 % test."""
    places = ["test", "dev", *["train"] * 8]
    return [replace(dialogue, split=places[int(rank(dialogue), 16) % 10]) for dialogue in dialogues]


RECIPES = (
    Recipe("CLINC150", "none but the form", ("full", "plus")),
    Recipe("BANKING77", "none but the form"),
    Recipe(
        "SNIPS",
        'slots as character spans; "dse" is the original release, split anew by the rule of DSE',
        ("slots", "dse"),
    ),
    Recipe(
        "HWU64",
        "slots as character spans; the standard split, the first cross-validation fold, and two re-splits of it",
        ("standard", "annotated", "dse", "tadse"),
    ),
    Recipe(
        "MASSIVE",
        'en-US only; "joined" takes the slots of SLURP and HWU64 wherever the text is the same',
        ("joined", "slurp"),
    ),
    Recipe(
        "SGD",
        "a sample of 5,000 dialogues, spread over splits and services, of those with acts throughout; of the "
        "annotation only acts and active intents are kept",
        steps=(annotated, spread(5000), without_slots),
    ),
    Recipe(
        "STAR",
        "what user and wizard say, with the wizard's action labels; the corpus has no splits, these are ours",
        steps=(split_by_rank,),
        notice="Copyright (c) 2020 Rasa Technologies GmbH",
    ),
    Recipe(
        "MultiWOZ",
        "dev and test of version 2.1 with acts; slots and states left out",
        ("copies",),
        (without_slots,),
        notice="Copyright (c) 2019 budzianowski",
    ),
    Recipe("WOZ2.0", "automatic transcripts and belief states left out"),
    Recipe(
        "CamRest676",
        "goals left out, labels of a turn reduced to what is new in it",
        notice="Copyright 2017 Cambridge University Engineering Department Dialogue Systems Group; Tsung-Hsien Wen",
    ),
    Recipe(
        "Taskmaster",
        "TM-4 and, put together from one shard of its training rows, a part of TM-3; annotation left out",
        ("tm4", "tm3-shard"),
        (without_slots,),
    ),
    Recipe(
        "TopicalChat",
        "a sample of 800 dialogues of the dev and test splits; speakers and text only",
        ("copies",),
        (spread(800),),
        notice="Copyright Amazon.com, Inc. or its affiliates",
    ),
    Recipe(
        "Self-dialogue",
        "a sample of 1,200 dialogues of the topic movies; text only",
        steps=(spread(1200),),
        notice="Copyright (c) 2017",
    ),
    Recipe(
        "UbuntuIRC",
        "the annotated conversations without notices and unannotated lines; response selection is derived from them",
        ("conversations",),
        derived=("turns", "selection-10", "selection-100"),
    ),
    Recipe(
        "CI-ToD",
        "one label per dialogue; knowledge bases left out",
        ("copies",),
        notice="The README of the pinned commit shows an MIT badge; no licence file and no copyright line was found. "
        "The dialogues are based on KVRET (Eric et al. 2017), which states no licence.",
    ),
    Recipe(
        "DialogueCSE",
        "the evaluation sets of JDDC only; ids that a row lists twice are listed once",
        ("jddc-select", "jddc-sts"),
        licence="Apache-2.0",
        notice="The other half of the evaluation sets, ECD, states no licence and is not here.",
    ),
    Recipe(
        "STS-B",
        "image captions only: the files images and track5.en-en",
        ("captions",),
        licence="CC-BY-SA-4.0",
        notice="Scores and track5.en-en (from SNLI, Bowman et al. 2015, EMNLP): CC-BY-SA-4.0. Captions of images "
        "(PASCAL VOC-2008, Rashtchian et al. 2010): CC-BY-SA. The other files have other terms and are not here.",
    ),
)


def build(store: Store, out: Path) -> dict[str, dict[str, Any]]:
    """Write every file, the index and ATTRIBUTION.md into a folder; return the index."""
    out.mkdir(parents=True, exist_ok=True)
    index = {}
    for recipe in RECIPES:
        data, index[recipe.name] = make(store, recipe)
        packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        (out / index[recipe.name]["file"]).write_bytes(packed)
    (out / "bundle.json").write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (out / "ATTRIBUTION.md").write_text(attribution(store), "utf-8")
    return index


def make(store: Store, recipe: Recipe) -> tuple[bytes, dict[str, Any]]:
    """The lines of one dataset and its entry in the index."""
    variants, blocks = {}, []
    for variant in recipe.variants:
        records = list(load(recipe.name, variant or None, store=store))
        for step in recipe.steps:
            records = step(records)
        splits = dict(Counter(record.split for record in records))
        variants[variant] = {"record": type(records[0]).__name__, "rows": len(records), "splits": splits}
        if isinstance(records[0], Dialogue):
            variants[variant]["utterances"] = sum(len(record.utterances) for record in records)
        blocks.append(to_lines(records))
    data = b"".join(blocks)
    return data, {
        "file": f"{recipe.name}.jsonl.xz",
        "sources": list(get_reader(recipe.name).sources),
        "licence": allowed(recipe),
        "changes": recipe.changes,
        "corpus": not recipe.derived and all(part["record"] == Dialogue.__name__ for part in variants.values()),
        "variants": variants,
        "derived": list(recipe.derived),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def allowed(recipe: Recipe) -> str:
    """The licence under which the records may be passed on, or an error if there is none."""
    source = get_source(recipe.name)
    licence = recipe.licence or (source.licence if source.redistributable else "")
    if not licence or "NC" in licence.split("-"):
        raise DataError(f"{recipe.name} may not be bundled: its licence is {source.licence!r}")
    return licence


def attribution(store: Store) -> str:
    """Who made the data, under which terms, and what was changed; with the notices that have to stay with them."""
    lines = [
        "# Attribution",
        "",
        "The files in this folder are parts of the datasets below, brought into one form (a JSON array per record; see",
        "`bundle.json`) by `python -m tools.bundling`. They are under the licences of their sources, not the code's.",
        f"Files under {' and '.join(SHARE_ALIKE)} may be passed on, changed or not, under the same licence only.",
    ]
    for recipe in RECIPES:
        source, licence = get_source(recipe.name), allowed(recipe)
        lines += ["", f"## {recipe.name}", "", f"- what: {source.title}", f"- cite: {source.citation}"]
        lines += [f"- from: <{source.homepage}>"] if source.homepage else []
        lines += [f"- licence: [{licence}]({LINKS[licence]})", f"- changes: {recipe.changes}"]
        lines += [f"- notice: {recipe.notice}"] if recipe.notice else []
    texts = {
        "MIT": store.members("STAR", "STAR.tar.gz", "LICENSE.txt")["LICENSE.txt"].decode(),
        "BSD-3-Clause": store.path("Self-dialogue", "LICENSE").read_text("utf-8"),
    }
    for licence, text in texts.items():
        names = ", ".join(recipe.name for recipe in RECIPES if allowed(recipe) == licence)
        terms = text.partition("\n\n")[2].partition("\n\n")[2].strip()
        lines += ["", f"## Terms of {licence} ({names})", "", *terms.splitlines()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


if __name__ == "__main__":
    from dialnb.data.store import default_store

    for name, entry in build(default_store(), Path(sys.argv[1])).items():
        print(f"bundled/{name}: {entry['file']}")
