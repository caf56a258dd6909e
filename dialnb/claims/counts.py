"""Counts of the records beside those that the papers and the makers of the data print (`dialnb data stats`).

What a paper prints is read from `papers/`; the figures below are those of the datasets' own descriptions. Nothing is
fetched for the overview: what is neither cached nor mirrored is reported as not available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialnb.claims.papers import load_paper
from dialnb.data import Dataset, load
from dialnb.data.corpora import TODBERT
from dialnb.errors import Offline, UnknownName

if TYPE_CHECKING:
    from dialnb.data.store import Store

MAKERS = "its makers"
NINE = "TOD-BERT"


@dataclass(frozen=True)
class Count:
    """One number: what was counted, what comes out here, what is printed and where; the remark says why they differ."""

    dataset: str
    item: str
    ours: int | None
    printed: int | None = None
    where: str = ""
    remark: str = ""


def printed(slug: str, table: str, row: str, column: str | None = None) -> int:
    """A printed number, from the paper's own file."""
    found = load_paper(slug).tables[table]
    values = next(item.values for item in found.rows if item.labels["model"] == row)
    return int(values[found.columns.index(column) if column else 0])


def per_split(data: Dataset, dataset: str, expected: dict[str, int], where: str = MAKERS) -> Iterator[Count]:
    """Records per split."""
    found = Counter(data.column("split"))
    for split, number in expected.items():
        yield Count(dataset, split, found[split], number, where)


def clinc150(store: Store) -> Iterator[Count]:
    rows = load("CLINC150", store=store)
    known = Counter((split, intent == "oos") for split, intent in zip(rows.column("split"), rows.column("intent")))
    inside, outside = {"train": 15_000, "dev": 3_000, "test": 4_500}, {"train": 100, "dev": 100, "test": 1_000}
    for split, number in inside.items():
        yield Count("CLINC150", split, known[split, False], number, MAKERS)
    for split, number in outside.items():
        yield Count("CLINC150", f"{split}, out of scope", known[split, True], number, MAKERS)


def banking77(store: Store) -> Iterator[Count]:
    rows = load("BANKING77", store=store)
    yield from per_split(rows, "BANKING77", {"train": 10_003, "test": printed("dse", "X2", "Bank77 test")})
    yield Count("BANKING77", "intents", len(set(rows.column("intent"))), 77, MAKERS)


def snips(store: Store) -> Iterator[Count]:
    yield from per_split(load("SNIPS", store=store), "SNIPS", {"train": 13_084, "dev": 700, "test": 700})
    ours = len(load("SNIPS", "dse", "test", store))
    remark = "the rule (the first 90 % of a class, rounded up, are train) gives one row less on the original files"
    yield Count("SNIPS", "test, re-split of DSE", ours, printed("dse", "X2", "Snips test"), "DSE", remark)


def atis(store: Store) -> Iterator[Count]:
    rows = load("ATIS", store=store)
    yield from per_split(rows, "ATIS", {"train": 4_478, "dev": 500, "test": 893})
    yield Count("ATIS", "intent strings", len(set(rows.column("intent"))), 26, MAKERS)


def dstc2(store: Store) -> Iterator[Count]:
    yield from _samples("DSTC2", load("DSTC2", store=store), ("train", "dev", "test"))


def gsim(store: Store) -> Iterator[Count]:
    yield from _samples("GSIM", load("GSIM", store=store), ("train", "dev", "test"))


def _samples(name: str, data: Dataset, splits: Sequence[str]) -> Iterator[Count]:
    """DiaEval's samples for action prediction: every utterance from the third on."""
    for split in splits:
        ours = sum(max(0, len(dialogue.utterances) - 2) for dialogue in data.filter(split=split))
        expected = printed("wmdc", "T1", name, "val" if split == "dev" else split)
        yield Count(name, f"{split}, samples of DiaEval", ours, expected, "WMDC T1")


def citod(store: Store) -> Iterator[Count]:
    found = Counter(load("CI-ToD", store=store).column("split"))
    for split, column in (("train", "train"), ("dev", "val"), ("test", "test")):
        remark = "the weather part of train is missing" if split == "train" else ""
        yield Count("CI-ToD", split, found[split], printed("wmdc", "T1", "IC-TOD", column), "WMDC T1", remark)


def dialoguecse(store: Store) -> Iterator[Count]:
    sizes = {
        "ecd-select": {"dev": 2_373, "test": 4_243},
        "ecd-sts": {"dev": 500, "test": 1_000},
        "ecd-train": {"train": 1_000},
        "jddc-select": {"dev": 2_094, "test": 6_970},
        "jddc-sts": {"dev": 1_000, "test": 2_000},
    }
    for variant, expected in sizes.items():
        for count in per_split(load("DialogueCSE", variant, store=store), "DialogueCSE", expected):
            yield Count(count.dataset, f"{variant}, {count.item}", count.ours, count.printed, count.where)


CORPORA = {
    "MetaLWOZ": ("MetaLWOZ", ""),
    "SGD": ("Schema", ""),
    "Taskmaster": ("Taskmaster", "TM-1: 2,000 dialogues, values replaced by slot names"),
    "MultiWOZ": ("MWOZ", "dev and test; counted in exchanges, as printed"),
    "MDC": ("MSR-E2E", "movie and taxi; the restaurant file is missing"),
    "KVRET": ("SMD", "one dialogue is missing"),
    "Frames": ("Frames", ""),
    "WOZ2.0": ("WOZ", "counted in exchanges, as printed"),
    "CamRest676": ("CamRest676", "counted in exchanges, as printed"),
}


def corpus(name: str) -> Callable[[Store], Iterator[Count]]:
    """One of the nine TOD-BERT corpora: dialogues and utterances (or exchanges, where the table counts these)."""
    row, remark = CORPORA[name]
    variant = next(part.variant for part in TODBERT if part.dataset == name)

    def count(store: Store) -> Iterator[Count]:
        data = load(name, variant, store=store)
        speakers = data.column("utterances.speaker")
        said = speakers.count("user") if "exchanges" in remark else len(speakers)
        yield Count(name, "dialogues", len(data), printed("wmdc", "T6", row, "dialogues"), "WMDC T6", remark)
        yield Count(name, "utterances", said, printed("wmdc", "T6", row, "utterances"), "WMDC T6", remark)
        if name == "MetaLWOZ":
            expected = printed("wmdc", "T6", row, "domains")
            yield Count(name, "domains", len(set(data.column("domains"))), expected, "WMDC T6")

    return count


def todbert(store: Store) -> Iterator[Count]:
    """The nine corpora together, the pairs and sentences that DSE makes of them, and their most frequent utterances."""
    from dialnb.examples.pairs import consecutive_pairs, tail_quirk, unique_sentences

    sizes = {name: {count.item: count for count in corpus(name)(store)} for name in CORPORA}
    for item in ("dialogues", "utterances"):
        ours, total = sum(found[item].ours for found in sizes.values()), printed("wmdc", "T6", "TOTAL", item)
        yield Count(NINE, item, ours, total, "WMDC T6", f"{ours / total:.1%} of it is present")

    clean: list[list[str]] = []
    frequency, recorded = Counter[str](), Counter[str]()
    every, kept, whole = 0, 0, 0.0
    for part in TODBERT:
        lists, records = [], []
        for dialogue in load(part.dataset, part.variant, store=store):
            texts = [" ".join(item.text.split()) for item in dialogue.utterances]
            lists.append([text for text in texts if text])
            records.append(tail_quirk(texts, dialogue.utterances[0].speaker == "system"))
            frequency.update(text.lower() for text in lists[-1])
            recorded.update(text.lower() for text in records[-1])
        clean += lists
        size = sizes[part.dataset]["utterances"]
        every, own = every + len(consecutive_pairs(lists)), len(consecutive_pairs(records))
        kept, whole = kept + own, whole + own * size.printed / size.ours
    yield from _pairs(every, kept, round(whole), len(unique_sentences(clean)))
    yield from _frequent(frequency, recorded)


def _pairs(every: int, kept: int, whole: int, sentences: int) -> Iterator[Count]:
    expected = printed("dse", "X2", "consecutive pairs after filter")
    for item, ours, remark in (
        ("pairs, every utterance kept", every, "three quarters of the corpus, but no line is lost at either end"),
        ("pairs, as in TOD-BERT's records", kept, "opening lines are lost in the code; closing ones too, by inference"),
        ("pairs, extrapolated", whole, "the same, with every corpus scaled up to its printed number of utterances"),
    ):
        yield Count(NINE, item, ours, expected, "DSE", f"{ours / expected:.1%}: {remark}")
    expected = printed("dse", "X2", "unique sentences for DSE-dropout")
    yield Count(NINE, "unique sentences", sentences, expected, "DSE", f"{sentences / expected:.1%}")


def _frequent(frequency: Counter[str], recorded: Counter[str]) -> Iterator[Count]:
    """WMDC's ten most frequent utterances (lower-cased, stripped, punctuation kept), then ours that are not among them.

    The printed list has no greeting and no farewell of a system: more evidence that such lines were lost.
    """
    known = {row.labels["model"]: int(row.values[0]) for row in load_paper("wmdc").tables["T5"].rows}
    order = [text for text, _ in frequency.most_common()]
    for text in [*known, *(text for text in order[:10] if text not in known)]:
        rank = f"rank {order.index(text) + 1:,}; " if text in frequency else ""
        where = "WMDC T5" if text in known else ""
        remark = f"{rank}{recorded[text]:,} in TOD-BERT's records"
        yield Count(NINE, f'"{text}"', frequency[text], known.get(text), where, remark)


SECTIONS: dict[str, Callable[[Store], Iterator[Count]]] = {
    "CLINC150": clinc150,
    "BANKING77": banking77,
    "SNIPS": snips,
    "ATIS": atis,
    "DSTC2": dstc2,
    "GSIM": gsim,
    "CI-ToD": citod,
    "DialogueCSE": dialoguecse,
    **{name: corpus(name) for name in CORPORA},
    NINE: todbert,
}


def count_all(store: Store, names: Sequence[str] = ()) -> Iterator[Count]:
    """All numbers, section by section. A dataset that is not at hand gives one line that says so, or, if it was asked
    for by name, its error."""
    known = {name.casefold(): name for name in SECTIONS}
    if unknown := [name for name in names if name.casefold() not in known]:
        raise UnknownName("dataset with published counts", unknown[0], SECTIONS)
    for name in [known[name.casefold()] for name in names] or SECTIONS:
        try:
            yield from list(SECTIONS[name](store))
        except Offline as error:
            if names:
                raise
            missing = str(error).partition(",")[0]
            remark = f"not available: {missing}; fetch it (dialnb data fetch), or set DIALNB_MIRROR"
            yield Count(name, "", None, remark=remark)
