"""Counts of the records beside those that the papers and the makers of the data print (`dialnb data stats`).

What is printed stands in `papers/` and in the registry's `counts.yaml`. Nothing is fetched for the overview: what is
neither cached nor mirrored is reported as not available.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dialnb.claims.papers import load_paper
from dialnb.data import Store, collection, load
from dialnb.data.datasets import measure
from dialnb.data.sources import known_name, read_registry
from dialnb.errors import Offline

NINE = "TOD-BERT"
EXPECTED = read_registry("counts")


@dataclass(frozen=True)
class Count:
    """One number: what was counted, what comes out here, what is printed and where; the remark says why they differ."""

    dataset: str
    item: str
    ours: int | None
    printed: int | None = None
    where: str = ""
    remark: str = ""


def printed(number: int | Sequence[str]) -> tuple[int, str]:
    """A number of the makers, or of the named cell of a paper's table, and where it stands."""
    if isinstance(number, int):
        return number, "its makers"
    slug, table, name, *column = number
    cells = load_paper(slug).tables[table]
    row = next(row for row in cells.rows if row.labels["model"] == name)
    place = cells.columns.index(column[0]) if column else 0
    return int(row.values[place]), f"{load_paper(slug).name} {table}"


def count_dataset(name: str, store: Store) -> Iterator[Count]:
    """The numbers of one dataset."""
    for entry in EXPECTED[name]:
        data = load(name, entry.get("variant"), entry.get("split"), store)  # held, so that the next shares its table
        yield Count(name, entry["item"], measure(data, entry), *printed(entry["printed"]), entry.get("remark", ""))


def count_todbert(store: Store) -> Iterator[Count]:
    """The nine corpora together, what DSE makes of them, and the utterances that WMDC counts as most frequent."""
    from dialnb.examples.pairs import consecutive_pairs, tail_quirk, unique_sentences

    ours: dict[str, float] = defaultdict(float)
    every = []
    for part in collection("todbert"):
        dialogues = load(part.dataset, part.variant, store=store)
        sizes = {count.item: count for count in count_dataset(part.dataset, store)}
        clean, recorded = [], []
        for dialogue in dialogues:
            texts = [" ".join(utterance.text.split()) for utterance in dialogue.utterances]
            clean.append([text for text in texts if text])
            recorded.append(tail_quirk(texts, dialogue.utterances[0].speaker == "system"))
        every += clean
        pairs, utterances = len(consecutive_pairs(recorded)), sizes["utterances"]
        ours["dialogues"] += len(clean)
        counted = utterances.ours or 0
        ours["utterances"] += counted
        ours["pairs, every utterance kept"] += len(consecutive_pairs(clean))
        ours["pairs, as in TOD-BERT's records"] += pairs
        ours["pairs, extrapolated"] += pairs * (utterances.printed or 0) / counted
    ours["unique sentences"] = len(unique_sentences(every))
    for entry in EXPECTED[NINE]:
        number, where = printed(entry["printed"])
        count = round(ours[entry["item"]])
        yield Count(NINE, entry["item"], count, number, where, f"{count / number:.1%}{entry.get('remark', '')}")
    frequency = Counter(text.lower() for texts in every for text in texts)
    for row in load_paper("wmdc").tables["T5"].rows:
        text = row.labels["model"]
        yield Count(NINE, f'"{text}"', frequency[text], int(row.values[0]), "WMDC T5")


def count_all(store: Store, names: Sequence[str] = ()) -> Iterator[Count]:
    """All numbers, dataset by dataset. One that is not at hand gives one line that says so, or, if it was asked for by
    name, its error."""
    chosen = [known_name("dataset with published counts", name, EXPECTED) for name in names]
    for name in chosen or EXPECTED:
        try:
            yield from list(count_todbert(store) if name == NINE else count_dataset(name, store))
        except Offline as error:
            if names:
                raise
            missing = str(error).partition(",")[0]
            remark = f"not available: {missing}; fetch it (dialnb data fetch), or set DIALNB_MIRROR"
            yield Count(name, "", None, remark=remark)
