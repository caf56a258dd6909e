"""Judged dialogues of DiaEval, CI-ToD (consistency) and DECODE (contradiction): the last utterance is judged."""

from posixpath import basename

from dialnb.data.readers import SPLITS, Files, Records, reader
from dialnb.data.records import InferenceItem


@reader("CI-ToD", variants=("copies", "official"))
def read_citod(files: Files, variant: str) -> Records:
    """Is the last reply consistent with the dialogue? The weather part of train is in "official" only."""
    patterns = ("*_train.json", "*_dev.json", "*_test.json")
    for name, data in files.find(*patterns, official=variant == "official"):
        yield from judged_replies(files, name, data)


def judged_replies(files: Files, name: str, data: bytes) -> Records:
    """Label "1" (inconsistent) if the reply contradicts the query (qi) or the history (hi); the knowledge base and
    its label kbi are not used. The ids of the files repeat, so the place in the file is the id."""
    domain, _, part = basename(name).removesuffix(".json").rpartition("_")
    for number, item in enumerate(files.items(name, data)):
        labels = {item["scenario"][flag] for flag in ("qi", "hi")}
        if not labels <= {"0", "1"}:
            raise ValueError(f"labels {', '.join(sorted(labels))}, expected 0 or 1")
        said = tuple(turn["utterance"] for turn in item["dialogue"])
        yield InferenceItem(f"{domain}-{part}-{number}", said, max(labels), SPLITS[part])


@reader("DECODE", variants=("human-bot", "rct", "pairs", "main"))
def read_decode(files: Files, variant: str) -> Records:
    """Label "1" if the last utterance contradicts its speaker. "main" are the official train, dev and test files,
    "human-bot" and "rct" the extra test sets; "pairs" are contradictory utterance pairs of the main collection."""
    if variant == "pairs":
        for name, data in files.find("contradiction_df.tsv"):
            for number, item in enumerate(files.table(name, data, ("seg1", "seg2", "label"), "\t")):
                yield InferenceItem(f"pairs-{number}", (item["seg1"], item["seg2"]), "1", "train")
        return
    for part in ("train", "dev", "test") if variant == "main" else (variant,):
        for name, data in files.find(f"{part}.jsonl", official=variant == "main"):
            for item in files.json_lines(name, data):
                turns = sorted(item["turns"], key=lambda turn: turn["turn_id"])
                label = {True: "1", False: "0"}[item["is_contradiction"]]
                said = tuple(turn["text"] for turn in turns)
                yield InferenceItem(item["record_id"], said, label, SPLITS.get(part, "test"))
