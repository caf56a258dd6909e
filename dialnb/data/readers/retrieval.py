"""DialogueCSE's released files: semantic retrieval ("select"), sentence similarity ("sts") and a training sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dialnb.data.readers import Skipped, reader, row, text_lines
from dialnb.data.records import Dialogue, MatchingGroup, RetrievalQuery, ScoredPair, Utterance

if TYPE_CHECKING:
    from dialnb.data.store import Store

FOLDERS = {"ecd": "datasets/edc", "jddc": "datasets/jddc"}


@reader("DialogueCSE", variants=("ecd-select", "jddc-select", "ecd-sts", "jddc-sts", "ecd-train", "ecd-sessions"))
def read_dialoguecse(
    store: Store, skipped: Skipped, variant: str = "ecd-select"
) -> Iterator[RetrievalQuery | ScoredPair | MatchingGroup | Dialogue]:
    """E-commerce (ECD) and JDDC, dev and test; of the training data only a sample of ECD was released.
    "ecd-sessions" are the dialogues that the rows of this sample were cut from."""
    corpus, _, kind = variant.partition("-")
    if kind in ("train", "sessions"):
        key = f"{FOLDERS[corpus]}/train/train_data.txt.sample"
        groups = matching_groups(text_lines(store.path("DialogueCSE", key), key))
        yield from sessions(groups, skipped) if kind == "sessions" else groups
        return
    for split in ("dev", "test"):
        key = f"{FOLDERS[corpus]}/{split}/{kind}.txt"
        lines = list(text_lines(store.path("DialogueCSE", key), key))
        yield from retrieval_queries(lines, split, skipped) if kind == "select" else scored_pairs(lines, split)


def retrieval_queries(lines: list[tuple[str, str]], split: str, skipped: Skipped) -> Iterator[RetrievalQuery]:
    """``id TAB sentence TAB intent TAB positive ids TAB negative ids``; an id is the row number in the same file."""
    for number, (where, line) in enumerate(lines):
        with row(where):
            identifier, text, intent, positives, negatives = line.split("\t")
            if int(identifier) != number:
                raise ValueError(f"id {identifier} in row {number}: ids must be row numbers")
            relevant, irrelevant = [[int(item) for item in ids.split(",")] for ids in (positives, negatives)]
            if beyond := [item for item in relevant + irrelevant if not 0 <= item < len(lines)]:
                raise ValueError(f"id {beyond[0]} is not a row of this file")
            unique = list(dict.fromkeys(relevant)), list(dict.fromkeys(irrelevant))
            if set(relevant) & set(irrelevant):
                raise ValueError("an id is listed both as relevant and as irrelevant")
        if repeated := len(relevant + irrelevant) - len(unique[0] + unique[1]):
            skipped.add("candidate listed twice", where, repeated)
        yield RetrievalQuery(number, text, tuple(unique[0]), tuple(unique[1]), intent, split)


def scored_pairs(lines: list[tuple[str, str]], split: str) -> Iterator[ScoredPair]:
    """``score (1 to 5) TAB sentence TAB sentence``."""
    for where, line in lines:
        with row(where):
            score, first, second = line.split("\t")
            if not 1 <= float(score) <= 5:
                raise ValueError(f"score {score}, expected 1 to 5")
        yield ScoredPair(first, second, float(score), split)


def matching_groups(lines: Iterator[tuple[str, str]]) -> Iterator[MatchingGroup]:
    """Six fields: utterances before, after, speaker roles, a constant, candidates (the true one first), labels."""
    for where, line in lines:
        with row(where):
            before, after, roles, _, candidates, labels = line.split("\t")
            made = MatchingGroup(
                tuple(before.split("|")),
                tuple(after.split("|")),
                tuple(candidates.split("|")),
                tuple(int(label) for label in labels.split("|")),
            )
            if len(made.candidates) != len(made.labels) or made.labels[0] != 1 or any(made.labels[1:]):
                raise ValueError("expected a label per candidate, of which only the first is 1")
            spoken = [len(side.split("|")) for side in roles.split("-")]
            if spoken != [len(made.before), 1, len(made.after)]:
                raise ValueError(f"the speaker roles {roles} do not fit the utterances before and after")
        yield made


def sessions(groups: Iterator[MatchingGroup], skipped: Skipped) -> Iterator[Dialogue]:
    """Each group's utterances in order, the true response among them; speakers alternate in all of these rows.

    A dialogue that another row was cut from too is left out.
    """
    seen: set[tuple[str, ...]] = set()
    for number, group in enumerate(groups):
        said = tuple(text for text in (*group.before, group.candidates[0], *group.after) if text.strip())
        if said in seen:
            skipped.add("dialogue of another row", f"row {number}")
            continue
        seen.add(said)
        yield Dialogue(
            f"ecd-{number}", tuple(Utterance(("user", "system")[i % 2], text) for i, text in enumerate(said))
        )
