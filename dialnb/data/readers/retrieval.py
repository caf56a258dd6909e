"""DialogueCSE's released files: semantic retrieval ("select"), sentence similarity ("sts") and a training sample."""

from collections.abc import Iterable

from dialnb.data.readers import Files, Records, in_turn, reader, unique
from dialnb.data.readers.pairs import scored
from dialnb.data.records import Dialogue, MatchingGroup, RetrievalQuery, ScoredPair

FOLDERS = {"ecd": "datasets/edc", "jddc": "datasets/jddc"}


@reader("DialogueCSE", variants=("ecd-select", "jddc-select", "ecd-sts", "jddc-sts", "ecd-train", "ecd-sessions"))
def read_dialoguecse(files: Files, variant: str) -> Records:
    """E-commerce (ECD) and JDDC, dev and test; of the training data only a sample of ECD was released.
    "ecd-sessions" are the dialogues that the rows of this sample were cut from."""
    corpus, kind = variant.split("-")
    if kind in ("train", "sessions"):
        groups = matching_groups(files.lines(f"{FOLDERS[corpus]}/train/train_data.txt.sample"))
        yield from sessions(files, groups) if kind == "sessions" else groups
        return
    for split in ("dev", "test"):
        key = f"{FOLDERS[corpus]}/{split}/{kind}.txt"
        if kind == "select":
            yield from retrieval_queries(files, key, files.read(key), split)
            continue
        for line in files.lines(key):
            score, first, second = line.split("\t")
            yield ScoredPair(first, second, scored(score, 1), split)


def retrieval_queries(files: Files, name: str, data: bytes, split: str) -> Records:
    """``id TAB sentence TAB intent TAB positive ids TAB negative ids``; an id is the row number in the same file."""
    rows = data.rstrip(b"\n").count(b"\n") + 1
    for number, line in enumerate(files.lines(name, data)):
        identifier, text, intent, positives, negatives = line.split("\t")
        if int(identifier) != number:
            raise ValueError(f"id {identifier} in row {number}: ids must be row numbers")
        relevant, irrelevant = (list(map(int, ids.split(","))) for ids in (positives, negatives))
        listed = set(relevant + irrelevant)
        if min(listed) < 0 or max(listed) >= rows:
            raise ValueError(f"{min(listed)} to {max(listed)} are not all rows of this file")
        unique_relevant, unique_irrelevant = unique(relevant), unique(irrelevant)
        if len(listed) < len(unique_relevant) + len(unique_irrelevant):
            raise ValueError("an id is listed both as relevant and as irrelevant")
        if repeated := len(relevant) + len(irrelevant) - len(listed):
            files.skipped["candidate listed twice"] += repeated
        yield RetrievalQuery(number, text, unique_relevant, unique_irrelevant, intent, split)


def matching_groups(lines: Iterable[str]) -> Records:
    """Six fields: utterances before, after, speaker roles, a constant, candidates (the true one first), labels."""
    for line in lines:
        before, after, roles, _, candidates, labels = (tuple(cell.split("|")) for cell in line.split("\t"))
        if len(candidates) != len(labels) or labels[0] != "1" or set(labels[1:]) - {"0"}:
            raise ValueError("expected a label per candidate, of which only the first is 1")
        said = "|".join(roles)
        if [len(side.split("|")) for side in said.split("-")] != [len(before), 1, len(after)]:
            raise ValueError(f"the speaker roles {said} do not fit the utterances before and after")
        yield MatchingGroup(before, after, candidates, tuple(map(int, labels)))


def sessions(files: Files, groups: Iterable[MatchingGroup]) -> Records:
    """Each group's utterances in order, the true response among them; speakers alternate in all of these rows.

    A dialogue that another row was cut from too is left out.
    """
    seen = set()
    for number, group in enumerate(groups):
        said = tuple(text for text in (*group.before, group.candidates[0], *group.after) if text.strip())
        if said in seen:
            files.skipped["dialogue of another row"] += 1
            continue
        seen.add(said)
        yield Dialogue(f"ecd-{number}", in_turn(said))
