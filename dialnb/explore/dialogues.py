"""A dialogue of one's own: what every method makes of it for training, and what each would answer."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd

from dialnb import plots
from dialnb.data import load
from dialnb.data.own_rows import SPEAKERS
from dialnb.data.records import Dialogue, IntentUtterance, SelectionGroup, Utterance
from dialnb.examples.manipulations import WINDOW, deletion, insertion, search
from dialnb.examples.matching import build_groups
from dialnb.examples.matching import neighbours as nearest_turns
from dialnb.examples.pairs import enough_words
from dialnb.examples.recogniser import with_entities
from dialnb.examples.templates import Augmentation, EntityBook, entity_book, make_template
from dialnb.examples.windows import response_frequencies, response_key
from dialnb.explore.methods import Methods
from dialnb.explore.panel import BEST, Panel, Text, table
from dialnb.explore.sentences import lines_of
from dialnb.losses import inverse_response_frequency
from dialnb.plots.windows import window_pairs
from dialnb.studies.training import thin
from dialnb.studies.ums_figures import drawn

SPEAKER = re.compile(r"([\w' -]{1,20}):\s+(.+)")
SHOWN = 8  # utterances in a drawing


def parse(text: str) -> Dialogue:
    """A pasted dialogue, one utterance a line, each with ``name:`` before it or none, when user and system take turns.

    >>> [(u.speaker, u.text) for u in parse("Customer: hi\\nAgent: hello").utterances]
    [('user', 'hi'), ('system', 'hello')]
    """
    lines = lines_of(text, "the dialogue", 2)
    named = [SPEAKER.fullmatch(line) for line in lines]
    if not all(named):
        said = [Utterance(("user", "system")[place % 2], line) for place, line in enumerate(lines)]
    else:
        said = [Utterance(SPEAKERS.get(match[1].casefold(), match[1]), match[2]) for match in named]
    return Dialogue("yours", tuple(said))


def from_dialogue(text: str, seed: int = 4) -> Panel:
    """Pairs (DSE), templates (TaDSE), windows (WMDC), context and responses (DialogueCSE) and manipulations (UMS)."""

    def show(dialogue: str) -> list:
        own = parse(dialogue)
        return [pairs(own), templates(own), windows(own), matching(own, seed), manipulations(own, seed)]

    return Panel(show, dialogue=Text("Your dialogue, one utterance a line:", text.strip()))


def pairs(dialogue: Dialogue):
    """DSE: neighbours, unless one of them is too short; a negative from elsewhere."""
    said, other = dialogue.utterances[:SHOWN], _others()[0].utterances[0]
    rows = [(0, u.speaker, _drawable(u.text), enough_words(u.text)) for u in said]
    rows.append((1, other.speaker, other.text, True))
    data = pd.DataFrame(rows, columns=["dialogue", "speaker", "text", "kept"])
    return plots.pair_construction(data, title="DSE: consecutive utterances are positive pairs")


def templates(dialogue: Dialogue) -> pd.DataFrame:
    """TaDSE: recognised entities become slots, which frequent values of the Entity Book fill again."""
    spoken = with_entities([IntentUtterance(u.text, "") for u in dialogue.utterances])
    filled = Augmentation(spoken, 2, book=_book())
    rows = []
    for place, utterance in enumerate(spoken):
        made = filled[filled.offsets[place] + 1 : filled.offsets[place + 1]][:2]
        rows.append((utterance.text, make_template(utterance, typed=True), " / ".join(made) or "(no slot)"))
    data = pd.DataFrame(rows, columns=["utterance", "template", "filled again"])
    return table(data, "TaDSE: entities become slots, slots take other values")


def windows(dialogue: Dialogue):
    """WMDC: the last utterance as the response of contexts of one, two and three utterances, and its weight."""
    said = dialogue.utterances[-6:]
    counts = [_frequencies()[response_key(u.text)] + 1 for u in said]
    weights = inverse_response_frequency(np.array(counts)).numpy()
    rows = [(u.speaker, _drawable(u.text), count, weight) for u, count, weight in zip(said, counts, weights)]
    data = pd.DataFrame(rows, columns=["speaker", "text", "frequency", "weight"])
    return window_pairs(data, title="WMDC: one response, and a context for every window")


def matching(dialogue: Dialogue, seed: int) -> pd.DataFrame:
    """DialogueCSE: what was said around each utterance, which must tell it from utterances of other dialogues."""
    sessions = [[u.text for u in one.utterances] for one in (dialogue, *_others())]
    rows = []
    for group in build_groups(sessions, 2, seed)[: len(dialogue.utterances)][-3:]:
        before, after = nearest_turns(group)
        rows.append(
            (" … ".join(before[::-1]), group.candidates[0], " … ".join(after), " / ".join(group.candidates[1:]))
        )
    data = pd.DataFrame(rows, columns=["said before", "response", "said after", "wrong responses"])
    return table(data, "DialogueCSE: the turns around a response tell it from others")


def manipulations(dialogue: Dialogue, seed: int):
    """UMS: the last utterances with one taken out, a foreign one put in, or shuffled."""
    said, rng = [_drawable(u.text) for u in dialogue.utterances[-WINDOW:]], np.random.default_rng(seed)
    texts, places = [*said, _others()[0].utterances[0].text], list(range(len(said)))
    kinds = ["utterance"] * (len(said) - 1) + ["response"]
    rows = [("dialogue", "", text, kind) for text, kind in zip(said, kinds)]
    for made in (insertion(places, rng), deletion(places, len(said), rng), search(places, rng)):
        rows += [(made.task, *part) for part in drawn(made, texts)]
    data = pd.DataFrame(rows, columns=["column", "mark", "text", "kind"])
    return plots.manipulations(data, title="UMS: three tasks from the same utterances")


def preferences(methods: Methods, dialogue: str, candidates: list[str]) -> Panel:
    """Which candidate each method takes for the next utterance."""

    def show(dialogue: str, candidates: str) -> list:
        context = tuple(u.text for u in parse(dialogue).utterances)
        return [scores(methods, context, lines_of(candidates, "candidates", 2))]

    listed = Text("Candidates for the next utterance, one a line:", "\n".join(candidates))
    return Panel(show, dialogue=Text("The dialogue so far:", dialogue), candidates=listed)


def scores(methods: Methods, context: tuple[str, ...], candidates: list[str]):
    """The score of every candidate by every method; a star marks the one it prefers."""
    group = SelectionGroup("yours", context, tuple(candidates), (0,) * len(candidates))
    found = pd.DataFrame({name: score([group])[0] for name, score in methods.scorers.items()}, candidates)
    best = found.eq(found.max())
    marked = found.map("{:.2f}".format) + best.map({True: " ★", False: ""}.get)

    return table(marked, index=True).apply(lambda _: best.map({True: BEST, False: ""}.get), axis=None)


def _drawable(text: str) -> str:
    """Dollars are no formulas."""
    return text.replace("$", r"\$")


@cache
def _others() -> list[Dialogue]:
    """A few dialogues of a corpus, for what comes from elsewhere."""
    return [one for one in load("bundled/MultiWOZ")[:40] if max(len(u.text) for u in one.utterances[:1]) < 80][:10]


@cache
def _frequencies():
    """How often every utterance occurs in the bundled dialogues."""
    return response_frequencies([load("bundled/dialogues").texts()])


@cache
def _book() -> EntityBook:
    """Recognised entities in requests of CLINC150."""
    return entity_book(with_entities(thin(load("bundled/CLINC150", "full").filter(split="train"), 3000)))
