"""Every objective of the five papers as a pure function of tensors.

Three habits hold throughout:

- Losses are computed in float32 or wider: half-precision inputs are widened, float64 stays float64, autocast is off
  inside. (Whether float32 products may use TF32 is torch's own setting and the caller's choice.)
- No function expects normalised vectors. Those written with ``s(a, b)`` are cosine losses and normalise inside; those
  written with a dot product (`response_contrastive_loss`, `siamese_matching_loss`) use the vectors as they come.
- Losses with in-batch negatives see the whole batch at once: gather all processes' vectors *with* gradient first.
  Similarities are formed in blocks of rows, so memory stays bounded however large the batch.

>>> import torch
>>> first, second = torch.eye(2), torch.tensor([[0.8, 0.6], [0.6, 0.8]])
>>> round(hard_negative_loss(first, second, temperature=0.5).item(), 4)
0.9723
"""

from dialnb.losses.contrastive import (
    hard_negative_loss,
    inverse_response_frequency,
    nt_xent_loss,
    response_contrastive_loss,
    weighted_symmetric_loss,
)
from dialnb.losses.matching import (
    matching_guided_embedding,
    matching_guided_loss,
    matching_matrix,
    siamese_matching_loss,
)
from dialnb.losses.single import (
    manipulation_loss,
    manipulation_task_loss,
    masked_language_model_loss,
    next_sentence_loss,
    replaced_token_loss,
)
from dialnb.losses.templates import TemplateLosses, semantic_compression, template_losses

__all__ = [
    "TemplateLosses",
    "hard_negative_loss",
    "inverse_response_frequency",
    "manipulation_loss",
    "manipulation_task_loss",
    "masked_language_model_loss",
    "matching_guided_embedding",
    "matching_guided_loss",
    "matching_matrix",
    "next_sentence_loss",
    "nt_xent_loss",
    "replaced_token_loss",
    "response_contrastive_loss",
    "semantic_compression",
    "siamese_matching_loss",
    "template_losses",
    "weighted_symmetric_loss",
]
