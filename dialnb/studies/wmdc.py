"""What belongs to WMDC and DiaEval alone (Dialogue Representation Learning: A New Benchmark and Weighted Contrastive
Learning Approach): its models in a profile, a drawing, the geometry. Models, tasks and figures are in its notebook.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.data import Utterance
from dialnb.evaluation import Scores, diaeval, evaluator, geometry
from dialnb.examples.readings import Dialogues
from dialnb.examples.windows import WINDOWS, context_length
from dialnb.files import Fields
from dialnb.losses import inverse_response_frequency
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model
from dialnb.studies import dse
from dialnb.studies.shared import NAMES

NAMED = NAMES["wmdc"]
CHECKPOINTS = NAMED["checkpoints"]
"""Public checkpoints by row; all are mean-pooled, as everything in DiaEval is."""

VARIANTS = NAMED["variants"]
"""Other choices than the paper's, by name: recipe and options of the loss. All but the last have windows 1 to 3."""

HEAD = 40
"""The rate of the heads is forty times that of the encoder."""


def model(
    recipe: str,
    s: Fields,
    dialogues: Dialogues,
    sweep: bool = False,
    **changes: Any,
) -> Model:
    """A model as WMDC's notebook trains it in a profile; the baselines are those of DSE's notebook.

    The points of a sweep may have fewer steps, all of them the same number.
    """
    if not recipe.startswith("WMDC"):
        made = dse.model(recipe, s, dialogues, **changes)
        return replace(made, watch=None, report=0) if recipe == "DSE" else made  # no figure shows its epochs here
    rate = s["wmdc_learning_rate"]
    settings = {
        "learning_rate": rate,
        "head_learning_rate": rate and HEAD * rate,
        "epochs": s["wmdc_epochs"],
        "max_steps": s["wmdc_max_steps"] or s["max_steps"],
    }
    if sweep and s["sweep_steps"]:  # however small the corpus is
        settings |= {"max_steps": s["sweep_steps"], "epochs": float(s["sweep_steps"])}
    return Model(recipe, data=dialogues, settings=settings, **changes)


# --- drawing ----------------------------------------------------------------------------------------------------------


def window_rows(utterances: Sequence[Utterance], counts: Sequence[int]) -> DataFrame:
    """For F2: what was said, how often each utterance occurs in a corpus, and the weight that follows from it."""
    data = DataFrame({"speaker": [said.speaker for said in utterances]})
    data["text"] = [" ".join(said.text.split()) for said in utterances]
    return data.assign(frequency=counts, weight=inverse_response_frequency(counts).tolist())


# --- shape of the space -----------------------------------------------------------------------------------------------


@evaluator("geometry")
def geometry_of(encoder: Encoder, records: DataFrame, *, dataset: str) -> Scores:
    """Uniformity and anisotropy of distinct responses, alignment of responses with their contexts, in every draw."""
    mark = f" {diaeval.separator_of(encoder)} "
    for draw, part in records.groupby("draw"):
        contexts, responses = part["context"].map(mark.join).tolist(), part["response"].tolist()
        before = encoder.encode(contexts, max_length=context_length(max(WINDOWS)), truncate="left")
        after = encoder.encode(responses, max_length=64)
        alone = encoder.encode(list(dict.fromkeys(responses)), max_length=64)
        values = {
            "Uniformity": geometry.uniformity(alone),
            "Anisotropy": geometry.anisotropy(alone),
            "Alignment": geometry.alignment(np.concatenate([before, after]), [*range(len(part))] * 2),
        }
        yield values, {"protocol": "clean", "n": len(alone), "seed": int(draw)}
