"""Model cards: what an encoder was made from, how, under which licences, and how it scores."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from dialnb.data.corpora import Conversation
from dialnb.data.sources import load_registry

HEADER = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [dialogue, dialnb]
{licence}---

# {title}

{what}

```python
import dialnb

encoder = dialnb.load_encoder("{name}")
vectors = encoder.encode(["book a table for two", "a table for 2, please"])
```

## Scores

Prototype intent classification, accuracy in %, mean of 10 seeds ("±" is the 95 % interval of the average over seeds);
reproduce with `dialnb evaluate {name}`.

{scores}

## Text it has seen

{data}

## Training

{training}
"""


def pretraining_card(encoder, recipe, dialogues: Sequence[Conversation], result, summary: pd.DataFrame, facts) -> str:
    """The card of an encoder made from scratch."""
    size = sum(p.numel() for p in encoder.parameters()) / 1e6
    c = encoder.transformer.config
    what = (
        f"A small {recipe.kind.upper()} encoder ({c.num_hidden_layers} layers, {c.hidden_size} wide, {size:.1f} M "
        f"parameters, {len(encoder.tokenizer):,} uncased word pieces of its own), made from scratch by dialnb with "
        f"{'masked language modelling' if recipe.kind == 'bert' else 'replaced-token detection'}"
        " on dialogues. Mean pooling. English, task-oriented and technical chat; nothing was removed from the corpora, "
        "so it may reflect their biases. A research baseline, not a product."
    )
    settings = asdict(recipe) | asdict(recipe.settings)
    settings.pop("settings")
    return _card(encoder, what, dialogues, settings, result, summary, facts)


def recipe_card(encoder, recipe, dialogues: Sequence[Conversation], result, summary: pd.DataFrame, facts) -> str:
    """The card of an encoder trained by one of the papers' recipes."""
    name, start, settings = recipe
    what = f"Trained by the {name} recipe from the encoder `{start}` with dialnb. {encoder.pooling.title()} pooling."
    return _card(encoder, what, dialogues, asdict(settings), result, summary, facts)


def _card(encoder, what: str, dialogues, settings: dict, result, summary: pd.DataFrame, facts: dict) -> str:
    counts = Counter()
    for dialogue in dialogues:
        counts[dialogue.corpus] += len(dialogue.utterances)
    data = ["| corpus | utterances | licence |", "|---|---|---|"]
    for corpus, count in counts.most_common():
        source = load_registry().get(re.split("[/:]", corpus.removeprefix("bundled/"))[0])
        data.append(f"| {corpus} | {count:,} | {source.licence if source else 'not in the registry'} |")
    commit = facts["provenance"]["code"]["commit"]
    made = f"{result.steps:,} steps, {result.seconds:.0f} s, {result.tokens_per_second:,.0f} tokens/s; final loss "
    made += f"{result.last_loss:.3f}; commit {commit or 'unknown'}; "
    made += "the whole record, curve included, is in `training.json`."
    rows = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
    return HEADER.format(
        licence="license: apache-2.0\n" if encoder.name == "mini" else "",
        title=encoder.name,
        what=what,
        name=encoder.name,
        scores=_markdown(summary.round(2)),
        data="\n".join(data),
        training=f"{made}\n\n| setting | value |\n|---|---|\n{rows}",
    )


def _markdown(table: pd.DataFrame) -> str:
    rows = [["shots", *table.columns], ["---"] * (len(table.columns) + 1)]
    for shots, values in zip(table.index, table.to_numpy()):
        rows.append([shots, *values])
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
