"""Every objective of the five papers as a pure function of tensors.

Three habits hold throughout:

- Losses are computed in float32 or wider: half-precision inputs are widened, float64 stays float64, autocast is off
  inside. (Whether float32 products may use TF32 is torch's own setting and the caller's choice.)
- No function expects normalised vectors. Those written with ``s(a, b)`` are cosine losses and normalise inside; those
  written with a dot product (`response_contrastive_loss`, `siamese_matching_loss`) use the vectors as they come.
- Losses with in-batch negatives see the whole batch at once: gather all processes' vectors *with* gradient first.
  Similarities are formed in blocks of rows, so memory stays bounded however large the batch.

>>> import torch
>>> from dialnb import losses
>>> first, second = torch.eye(2), torch.tensor([[0.8, 0.6], [0.6, 0.8]])
>>> round(losses.hard_negative_loss(first, second, temperature=0.5).item(), 4)
0.9723
"""

from dialnb import lazily

ROOMS = {
    "contrastive": (
        "hard_negative_loss inverse_response_frequency nt_xent_loss response_contrastive_loss weighted_symmetric_loss"
    ),
    "matching": "matching_guided_embedding matching_guided_loss matching_matrix siamese_matching_loss",
    "single": (
        "manipulation_loss manipulation_task_loss masked_language_model_loss next_sentence_loss replaced_token_loss"
    ),
    "templates": "TemplateLosses semantic_compression template_losses",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
