"""Models of one's own and dialogues of one's own, for looking around: the notebook says what is trained and shown."""

import re
from collections.abc import Mapping
from typing import Any

from dialnb.data import Dialogue, Utterance
from dialnb.data.readers import SPEAKERS, in_turn
from dialnb.evaluation.foreign import as_trainable
from dialnb.explore.panels import lines_of
from dialnb.files import say
from dialnb.runs.grid import Model, job_of
from dialnb.runs.stages import default_cache

SPEAKER = re.compile(r"([\w' -]{1,20}):\s+(.+)")


def train(models: Mapping[str, Model], encoder: Any, seed: int = 1) -> dict[str, Any]:
    """Train each of the models from an encoder, and say how long that took; found again when asked for again."""
    start = as_trainable(encoder)
    cache = default_cache()
    trained = {}
    for name, model in models.items():
        job = job_of({}, model, start, seed)
        result, record = cache.run(f"train {name}", *job)
        say(f"{name}: {'found again' if record.cached else f'trained in {record.seconds:.0f} s'}")
        trained[name] = result.model
    return trained


def parse(text: str) -> Dialogue:
    """A pasted dialogue, one utterance a line, each with ``name:`` before it or none, when user and system take turns.

    >>> [(u.speaker, u.text) for u in parse("Customer: hi\\nAgent: hello").utterances]
    [('user', 'hi'), ('system', 'hello')]
    """
    lines = lines_of(text, "the dialogue", 2)
    turns = [SPEAKER.fullmatch(line) for line in lines]
    if not all(turns):
        return Dialogue("yours", in_turn(lines))
    named = (turn.groups() for turn in turns if turn)
    return Dialogue("yours", tuple(Utterance(SPEAKERS.get(who.casefold(), who), words) for who, words in named))
