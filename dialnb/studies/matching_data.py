"""The corpora of DialogueCSE: what is trained on, what stage one reads, what models are scored on.

A *family* is a corpus that is trained on, with the evaluation sets that its models are scored on: JDDC's dialogues
cannot be had, so models trained on ECD, of the same language and trade, are scored on JDDC too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dialnb.data import Dataset, load
from dialnb.data.corpora import CHINESE
from dialnb.data.records import RetrievalQuery
from dialnb.errors import Offline
from dialnb.examples.matching import labelled_utterances, sessions
from dialnb.studies.common import find
from dialnb.studies.matching import rebuild

FAMILIES = {"MDC": ("MDC",), "SGD": ("SGD",), "ECD": ("ECD", "JDDC")}
"""Corpora that are trained on, and the evaluation sets that belong to each."""

REBUILT = {"SGD": "INFORM_INTENT", "MDC": ""}
"""Evaluation sets that are rebuilt from intents, and the dialogue act of the utterances that count (none: all do)."""

LENGTHS = {"MDC": 50, "SGD": 50, "ECD": 50, "JDDC": 100}
"""Tokens of a sentence (Section 5.2)."""


def dialogues_of(family: str, data: str) -> list[Dataset]:
    """The dialogues of a family; of ECD those of the released training rows and of the public sample of E-commerce."""
    if family == "SGD":
        return [load("bundled/SGD", split="train")]
    if family == "MDC":
        return [find(data, ("sources", "MDC", None))]
    if data == "official":
        try:
            return [load("E-commerce", "official-sessions")]
        except Offline:
            pass
    return [find(data, ("sources", *part)) for part in (("DialogueCSE", "ecd-sessions"), ("E-commerce", "sessions"))]


def text_of(family: str, data: str) -> list[Dataset]:
    """What stage one reads. In Chinese that is all text that can be had but the test sentences; see `CHINESE`."""
    if family != "ECD":
        return dialogues_of(family, data)
    if data == "bundled":
        return [load("bundled/DialogueCSE", variant, "dev") for variant in ("jddc-select", "jddc-sts")]
    whole = dialogues_of(family, data) if data == "official" else []
    return [*whole, *(load(part.dataset, part.variant, part.split) for part in CHINESE)]


def min_turns(family: str) -> int:
    """Shorter dialogues are dropped, but not in MDC (Section 5.1)."""
    return 4 if family == "ECD" else 0


def families(run) -> dict[str, list[str]]:
    """The families that the profile needs, each with the evaluation sets it asks for."""
    wanted = {name: [test for test in tests if test in run.settings.corpora] for name, tests in FAMILIES.items()}
    return {name: tests for name, tests in wanted.items() if tests}


def evaluation_of(run, name: str) -> dict[str, Any]:
    """Retrieval queries and scored pairs of one evaluation set, as inputs of `score`."""
    s = run.settings
    if name in REBUILT:
        return {"queries": rebuilt(run, name), "pairs": [], "limit": s.limit, "max_length": LENGTHS[name]}
    queries, pairs = (released(name, kind, s.data, "test") for kind in ("select", "sts"))
    return {"queries": queries, "pairs": pairs, "limit": s.limit, "max_length": LENGTHS[name]}


def rebuilt(run, name: str) -> list[RetrievalQuery]:
    """The retrieval set of English dialogues, which was not released: rebuilt from their intents, once for a run."""
    s = run.settings
    records = find(s.data, ("sources", "MDC", None)) if name == "MDC" else load("bundled/SGD", split="test")
    pools = {"size": s.queries, "positives": 30, "negatives": 70, "act": REBUILT[name], "seed": 24}
    return run.stage(f"rebuild the retrieval set of {name}", rebuild, records=records, **pools)


def released(name: str, kind: str, data: str, split: str) -> Dataset:
    """The authors' evaluation files: "select" (retrieval) or "sts" (similarity); those of JDDC are bundled."""
    variant = f"{name.lower()}-{kind}"
    if name == "JDDC":
        return load("bundled/DialogueCSE", variant, split)
    return find(data, ("sources", "DialogueCSE", variant)).filter(split=split)


def development(family: str, data: str) -> Sequence:
    """Scored pairs by which the best epoch is chosen; there are none in English."""
    if family != "ECD":
        return []
    return released("JDDC" if data == "bundled" else "ECD", "sts", data, "dev")


def count(corpora: list[Dataset], shortest: int, characters: bool) -> dict[str, int]:
    """Dialogues after preprocessing, their turns and words (of Chinese: characters), and the intents of their users."""
    found = sessions((record for part in corpora for record in part), shortest)
    intents = {intent for part in corpora for _, intent in labelled_utterances(part)}
    said = [text for session in found for text in session]
    words = sum(len("".join(text.split())) if characters else len(text.split()) for text in said)
    return {"dialogues": len(found), "turns": len(said), "words": words, "intents": len(intents)}
