"""WMDC: symmetric contrastive loss weighted by inverse response frequency."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dialnb.errors import TrainingError
from dialnb.losses._shared import (
    check_batch,
    check_ids,
    check_temperature,
    in_batch_cross_entropy,
    in_full_precision,
    reduced,
    unit,
)


def inverse_response_frequency(frequencies: Tensor | Sequence[float]) -> Tensor:
    """Weight ``IRF = 1 / (log freq + 1)`` of a response that occurs ``freq`` times in the corpus (natural logarithm).

    A response seen once weighs 1; "yes.", seen 5,371 times in the papers' corpus, weighs 0.1.

    >>> inverse_response_frequency([1, 100, 5371])
    tensor([1.0000, 0.1784, 0.1043])
    """
    frequencies = torch.as_tensor(frequencies)
    if not frequencies.is_floating_point():
        frequencies = frequencies.to(torch.get_default_dtype())
    dtype = torch.promote_types(frequencies.dtype, torch.float32)
    if not bool((frequencies >= 1).all()):
        raise TrainingError("inverse_response_frequency needs frequencies of at least 1, but some are below 1 or NaN.")
    return 1 / (frequencies.to(dtype).log() + 1)


@in_full_precision
def weighted_symmetric_loss(
    context: Tensor,
    response: Tensor,
    weights: Tensor | None = None,
    temperature: float = 0.05,
    normalise_weights: bool = False,
    duplicate_ids: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """WMDC's loss for the pairs of one window, both directions averaged, cross-side negatives only::

        l_i = -1/2 log( exp(s(c_i,r_i)/temperature) / sum_j exp(s(c_i,r_j)/temperature) )
              -1/2 log( exp(s(r_i,c_i)/temperature) / sum_j exp(s(r_i,c_j)/temperature) )
        L   = (1/N) sum_i weight_i l_i

    Args:
        context, response: vectors [N, d] after the window's head, N >= 2; normalised inside (s is the cosine).
        weights: `inverse_response_frequency` of the responses [N]; none for the ablation without reweighting.
        temperature: 0.05 in the paper.
        normalise_weights: divide by the sum of the weights instead of N. Off: it cancels the weights of a batch in
            which every response is frequent.
        duplicate_ids: one identifier per response [N]; rows that share one are not each other's negatives
            (``mask_duplicates``, which the paper does not do).
        reduction: ``"mean"``, or ``"none"`` for ``weight_i l_i`` (with normalised weights, times N over their sum).

    >>> context, response = torch.eye(2), torch.tensor([[0.8, 0.6], [0.6, 0.8]])
    >>> weights = inverse_response_frequency([1, 100])
    >>> round(weighted_symmetric_loss(context, response, weights, temperature=0.5).item(), 4)
    0.3023
    """
    check_batch("weighted_symmetric_loss", context=context, response=response)
    check_temperature("weighted_symmetric_loss", temperature)
    check_ids("weighted_symmetric_loss", "weights", weights, len(context))
    check_ids("weighted_symmetric_loss", "duplicate_ids", duplicate_ids, len(context))
    c, r = unit(context), unit(response)
    forward = in_batch_cross_entropy(c / temperature, r, duplicate_ids)
    losses = (forward + in_batch_cross_entropy(r / temperature, c, duplicate_ids)) / 2
    if weights is not None:
        losses = losses * (weights / weights.mean() if normalise_weights else weights)
    return reduced(losses, reduction)
