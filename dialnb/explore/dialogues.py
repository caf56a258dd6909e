"""A dialogue of one's own: what every method makes of it for training, and what each would answer."""

import re
from functools import cache

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame
from pandas.io.formats.style import Styler

from dialnb import plots
from dialnb.data import Dialogue, IntentUtterance, SelectionGroup, Texts, Utterance, load
from dialnb.data.readers import SPEAKERS, in_turn
from dialnb.examples.manipulations import WINDOW
from dialnb.examples.matching import build_groups
from dialnb.examples.matching import neighbours as nearest_turns
from dialnb.examples.readings import thin
from dialnb.examples.recogniser import with_entities
from dialnb.examples.templates import Augmentation, EntityBook, entity_book, make_template
from dialnb.examples.windows import response_frequencies, response_key
from dialnb.explore.methods import Methods
from dialnb.explore.panel import BEST, Control, Panel, table
from dialnb.explore.sentences import lines_of
from dialnb.studies.dse import pair_rows
from dialnb.studies.ums import manipulation_rows
from dialnb.studies.wmdc import window_rows

SPEAKER = re.compile(r"([\w' -]{1,20}):\s+(.+)")
SHOWN = 8  # utterances in a drawing
SEED = 4


def parse(text: str) -> Dialogue:
    """A pasted dialogue, one utterance a line, each with ``name:`` before it or none, when user and system take turns.

    >>> [(u.speaker, u.text) for u in parse("Customer: hi\\nAgent: hello").utterances]
    [('user', 'hi'), ('system', 'hello')]
    """
    lines = lines_of(text, "the dialogue", 2)
    spoken = [match.groups() for line in lines if (match := SPEAKER.fullmatch(line))]
    if len(spoken) < len(lines):
        return Dialogue("yours", in_turn(lines))
    return Dialogue("yours", tuple(Utterance(SPEAKERS.get(who.casefold(), who), said) for who, said in spoken))


def from_dialogue(text: str) -> Panel:
    """Pairs (DSE), templates (TaDSE), windows (WMDC), context and responses (DialogueCSE) and manipulations (UMS)."""

    def show(dialogue: str) -> list:
        own = parse(dialogue)
        return [pairs(own), templates(own), windows(own), matching(own, SEED), manipulations(own, SEED)]

    return Panel(show, dialogue=Control("Your dialogue, one utterance a line:", text.strip()))


def pairs(dialogue: Dialogue) -> Figure:
    """DSE: neighbours, unless one of them is too short; a negative from elsewhere."""
    data = pair_rows(dialogue.utterances[:SHOWN], _others()[0].utterances[0])
    return plots.pair_construction(data, title="DSE: consecutive utterances are positive pairs")


def templates(dialogue: Dialogue) -> Styler:
    """TaDSE: recognised entities become slots, which frequent values of the Entity Book fill again."""
    spoken = with_entities([IntentUtterance(u.text, "") for u in dialogue.utterances])
    filled = Augmentation(spoken, 2, book=_book())
    rows = []
    for place, utterance in enumerate(spoken):
        start, end = filled.offsets[place : place + 2]
        row = {"utterance": utterance.text, "template": make_template(utterance, typed=True)}
        row["filled again"] = " / ".join(filled[start + 1 : end][:2]) or "(no slot)"
        rows.append(row)
    return table(DataFrame(rows), "TaDSE: entities become slots, slots take other values")


def windows(dialogue: Dialogue) -> Figure:
    """WMDC: the last utterance as the response of contexts of one, two and three utterances, and its weight."""
    last = dialogue.utterances[-6:]
    data = window_rows(last, [_frequencies()[response_key(said.text)] + 1 for said in last])
    return plots.window_pairs(data, title="WMDC: one response, and a context for every window")


def matching(dialogue: Dialogue, seed: int) -> Styler:
    """DialogueCSE: what was said around each utterance, which must tell it from utterances of other dialogues."""
    sessions = [[said.text for said in session.utterances] for session in (dialogue, *_others())]
    rows = []
    for group in build_groups(sessions, 2, seed)[: len(dialogue.utterances)][-3:]:
        before, after = nearest_turns(group)
        right, *wrong = group.candidates
        rows.append(
            {
                "said before": " … ".join(before[::-1]),
                "response": right,
                "said after": " … ".join(after),
                "wrong responses": " / ".join(wrong),
            }
        )
    return table(DataFrame(rows), "DialogueCSE: the turns around a response tell it from others")


def manipulations(dialogue: Dialogue, seed: int) -> Figure:
    """UMS: the last utterances with one taken out, a foreign one put in, or shuffled."""
    texts = [said.text for said in dialogue.utterances[-WINDOW:]]
    data = manipulation_rows(texts, _others()[0].utterances[0].text, seed)
    return plots.manipulations(data, title="UMS: three tasks from the same utterances")


def preferences(methods: Methods, dialogue: str, candidates: list[str]) -> Panel:
    """Which candidate each method takes for the next utterance."""

    def show(dialogue: str, candidates: str) -> list:
        context = tuple(u.text for u in parse(dialogue).utterances)
        return [scores(methods, context, lines_of(candidates, "candidates", 2))]

    return Panel(
        show,
        dialogue=Control("The dialogue so far:", dialogue),
        candidates=Control("Candidates for the next utterance, one a line:", "\n".join(candidates)),
    )


def scores(methods: Methods, context: Texts, candidates: list[str]) -> Styler:
    """The score of every candidate by every method; a star marks the one it prefers."""
    group = SelectionGroup("yours", context, tuple(candidates), (0,) * len(candidates))
    values = DataFrame({name: score([group])[0] for name, score in methods.scorers.items()}, candidates)
    best = values == values.max()
    texts = values.map("{:.2f}".format) + np.where(best, " ★", "")
    return table(texts, index=True).apply(lambda _: np.where(best, BEST, ""), axis=None)


@cache
def _others() -> list[Dialogue]:
    """A few dialogues of a corpus that begin shortly, for what comes from elsewhere."""
    return [one for one in load("bundled/MultiWOZ")[:40] if len(one.utterances[0].text) < 80][:10]


@cache
def _frequencies():
    """How often every utterance occurs in the bundled dialogues."""
    return response_frequencies([load("bundled/dialogues").texts()])


@cache
def _book() -> EntityBook:
    """Recognised entities in requests of CLINC150."""
    return entity_book(with_entities(thin(load("bundled/CLINC150", "full").filter(split="train"), 3000)))
