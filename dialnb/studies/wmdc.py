"""What belongs to WMDC and DiaEval alone (Dialogue Representation Learning: A New Benchmark and Weighted Contrastive
Learning Approach): a drawing, the geometry. Models, tasks and figures are in its notebook.
"""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from dialnb.data import Utterance
from dialnb.evaluation import Scores, diaeval, evaluator, geometry
from dialnb.examples.windows import WINDOWS, context_length
from dialnb.losses import inverse_response_frequency
from dialnb.models.encoder import Encoder
from dialnb.studies.shared import NAMES

NAMED = NAMES["wmdc"]
CHECKPOINTS = NAMED["checkpoints"]
"""Public checkpoints by row; all are mean-pooled, as everything in DiaEval is."""

VARIANTS = NAMED["variants"]
"""Other choices than the paper's, by name: recipe and options of the loss. All but the last have windows 1 to 3."""

# --- drawing ----------------------------------------------------------------------------------------------------------


def window_rows(utterances: Sequence[Utterance], counts: Sequence[int]) -> DataFrame:
    """For F2: what was said, how often each utterance occurs in a corpus, and the weight that follows from it."""
    data = DataFrame({"speaker": [said.speaker for said in utterances]})
    data["text"] = [" ".join(said.text.split()) for said in utterances]
    return data.assign(frequency=counts, weight=inverse_response_frequency(counts).tolist())


# --- shape of the space -----------------------------------------------------------------------------------------------


@evaluator("geometry")
def response_geometry(encoder: Encoder, records: DataFrame, *, dataset: str) -> Scores:
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
