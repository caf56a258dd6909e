"""TaDSE: utterance, template and pairwise losses, and semantic compression."""

from typing import NamedTuple

import torch
from torch import Tensor

from dialnb.errors import check_known
from dialnb.losses._shared import (
    check_batch,
    check_ids,
    check_same_shape,
    check_temperature,
    in_batch_cross_entropy,
    in_full_precision,
    unit,
)


class TemplateLosses(NamedTuple):
    """The three terms of TaDSE and their weighted sum; only ``total`` is meant to be differentiated in training."""

    utterance: Tensor
    template: Tensor
    pair: Tensor
    total: Tensor


@in_full_precision
def template_losses(
    utterance: Tensor,
    utterance_plus: Tensor,
    template: Tensor,
    template_plus: Tensor,
    temperature_utterance: float = 0.05,
    temperature_template: float = 0.05,
    temperature_pair: float = 0.05,
    weight_utterance: float = 1.0,
    weight_template: float = 1.0,
    weight_pair: float = 0.5,
    direction: str = "template",
    template_ids: Tensor | None = None,
) -> TemplateLosses:
    """TaDSE's objective (section 3 of the paper), each term an N-way softmax of cosines over the batch::

        L_u    = -mean_i log( exp(s(u_i, u_i+)/tau_u) / sum_j exp(s(u_i, u_j+)/tau_u) )
        L_t    = -mean_i log( exp(s(t_i, t_i+)/tau_t) / sum_j exp(s(t_i, t_j+)/tau_t) )
        L_pair = -mean_i log( exp(s(t_i, u_i)/tau_p)  / sum_j exp(s(t_i, u_j)/tau_p) )
        L      = weight_utterance L_u + weight_template L_t + weight_pair L_pair

    Args:
        utterance, utterance_plus, template, template_plus: vectors [N, d], N >= 2; normalised inside. The plus sign is
            a second dropout pass. For the aligned variants pass templates after their linear-tanh layer.
        direction: what anchors L_pair: ``"template"`` (the paper, above), ``"utterance"`` (the code's default, with
            weight 0.01) or ``"both"`` (the average).
        template_ids: one identifier per row to keep rows with the same template from being each other's negatives in
            L_t (``mask_same_template``). Neither paper nor code does this.

    >>> u, u_plus = torch.eye(2), torch.tensor([[0.8, 0.6], [0.6, 0.8]])
    >>> t, t_plus = torch.tensor([[0.6, 0.8], [0, 1]]), torch.tensor([[0.8, 0.6], [0.28, 0.96]])
    >>> losses = template_losses(u, u_plus, t, t_plus)
    >>> round(losses.pair.item(), 4), round(losses.total.item(), 4)
    (2.0091, 1.2639)
    """
    name = "template_losses"
    check_batch(
        name, utterance=utterance, utterance_plus=utterance_plus, template=template, template_plus=template_plus
    )
    check_known("direction", direction, ("template", "utterance", "both"))
    check_ids(name, "template_ids", template_ids, len(template))
    for temperature in (temperature_utterance, temperature_template, temperature_pair):
        check_temperature(name, temperature)
    u, u_plus, t, t_plus = map(unit, (utterance, utterance_plus, template, template_plus))
    loss_u = in_batch_cross_entropy(u / temperature_utterance, u_plus).mean()
    loss_t = in_batch_cross_entropy(t / temperature_template, t_plus, template_ids).mean()
    anchored = {"template": [(t, u)], "utterance": [(u, t)], "both": [(t, u), (u, t)]}[direction]
    terms = [in_batch_cross_entropy(anchor / temperature_pair, other).mean() for anchor, other in anchored]
    loss_pair = torch.stack(terms).mean()
    total = weight_utterance * loss_u + weight_template * loss_t + weight_pair * loss_pair
    return TemplateLosses(loss_u, loss_t, loss_pair, total)


@in_full_precision
def semantic_compression(template: Tensor, utterance: Tensor, ratio: float, normalize: bool = True) -> Tensor:
    """TaDSE's vector for inference, ``ratio * t + (1 - ratio) * u``, for reference set and queries alike.

    Each part has length 1 first, as in the authors' code, so that the ratio weighs directions and not lengths; without
    ``normalize`` they are mixed as they come. (Scaling the mixture instead would not change its cosines.)

    >>> semantic_compression(torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0]]), ratio=0.2)
    tensor([[0.9200, 0.1600]])
    """
    check_same_shape("semantic_compression", template=template, utterance=utterance)
    if normalize:
        template, utterance = unit(template), unit(utterance)
    return ratio * template + (1 - ratio) * utterance
