"""Model cards: what an encoder was made from, how, under which licences, and how it scores."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Template
from pandas import DataFrame

from dialnb.data.corpora import Conversation
from dialnb.data.sources import load_registry
from dialnb.files import Values


def card(
    encoder, what: str, settings: Values, dialogues: Sequence[Conversation], result, summary: DataFrame, facts: Values
) -> str:
    """The card of an encoder that is ``what`` it says."""
    counts: Counter[str] = Counter()
    for dialogue in dialogues:
        counts[dialogue.corpus] += len(dialogue.utterances)
    read = []
    for corpus, count in counts.most_common():
        source = load_registry().get(re.split("[/:]", corpus.removeprefix("bundled/"))[0])
        read.append((corpus, count, source.licence if source else "not in the registry"))
    template = Path(__file__).with_name("card.md.j2").read_text("utf-8")
    return Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        name=encoder.name,
        what=what,
        scores=summary.round(2),
        read=read,
        settings=settings,
        result=result,
        commit=facts["provenance"]["code"]["commit"],
    )
