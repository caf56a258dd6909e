"""Universal dialogue acts: one set of labels for the acts of DSTC2 and GSIM (mapping in ``acts.yaml``)."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from dialnb.data.records import Dialogue
from dialnb.errors import DataError, check_known
from dialnb.files import read_yaml


@cache
def _mapping(dataset: str) -> dict[str, dict[str, str | None]]:
    """Speaker -> raw act -> universal act, or None where the act is left out."""
    mappings = read_yaml(__file__, "acts.yaml")
    check_known("dataset with universal acts", dataset, mappings)
    return mappings[dataset]


def act_columns(dataset: str) -> list[str]:
    """The universal acts of a dataset, sorted: 19 for DSTC2, 13 for GSIM."""
    return sorted({act for acts in _mapping(dataset).values() for act in acts.values() if act})


def with_universal_acts(dialogues: Iterable[Dialogue], dataset: str) -> list[Dialogue]:
    """The dialogues with universal acts in place of the dataset's own."""
    mapping, translated = _mapping(dataset), []
    for dialogue in dialogues:
        utterances = []
        for utterance in dialogue.utterances:
            known = mapping[utterance.speaker]
            if missing := [act for act in utterance.acts if act not in known]:
                raise DataError(
                    f"{dataset} dialogue {dialogue.id}: the {utterance.speaker}'s act {missing[0]!r} has no universal "
                    "act; add it to dialnb/examples/acts.yaml"
                )
            acts = dict.fromkeys(new for act in utterance.acts if (new := known[act]))
            utterances.append(replace(utterance, acts=tuple(acts)))
        translated.append(replace(dialogue, utterances=tuple(utterances)))
    return translated
