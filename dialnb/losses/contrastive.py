"""In-batch contrastive losses of DSE, SimCSE and TOD-BERT, and that of WMDC, weighted by inverse response frequency."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dialnb.errors import TrainingError, check_known
from dialnb.losses._shared import (
    by_blocks,
    check_batch,
    check_ids,
    check_temperature,
    in_batch_cross_entropy,
    in_full_precision,
    reduced,
    unit,
)

FORMS = ("code", "plain", "paper", "paper-negatives")


@in_full_precision
def hard_negative_loss(
    first: Tensor, second: Tensor, temperature: float = 0.05, form: str = "code", reduction: str = "mean"
) -> Tensor:
    """DSE's contrastive loss with hard negatives weighted up (section 3 of the paper).

    The ``2M`` vectors ``z = first, second`` are anchors in turn; ``p(i)`` is the other side of ``i``'s pair and
    ``Neg(i)`` the ``2M - 2`` vectors of the other pairs, both sides. With ``s_ij = cos(z_i, z_j) / temperature``::

        alpha_ij = exp(s_ij) / mean_{k in Neg(i)} exp(s_ik)
        l_i      = -log( exp(s_ip) / (exp(s_ip) + sum_{j in Neg(i)} alpha_ij exp(s_ij)) )

    computed as ``-log sigmoid(s_ip - S_i)``, ``S_i = LSE(2 s_ij) - LSE(s_ij) + log(2M - 2)``, which neither overflows
    nor loses small losses to rounding. The gradient flows through alpha, as in the authors' code.

    Args:
        first, second: vectors [M, d] of the two sides of the pairs, M >= 2; normalised inside.
        temperature: 0.05 in the paper.
        form: ``"code"`` as above; ``"plain"`` sets alpha to 1 (NT-Xent with 2M - 2 negatives); ``"paper"`` is the
            printed equation, ``-log(exp(s_ip) / sum_{j != i} exp(alpha_ij s_ij))``, kept as a reference: at 0.05 it is
            dominated by exponents in the thousands and below that it overflows; ``"paper-negatives"`` is the same with
            the positive unweighted.
        reduction: ``"mean"``, or ``"none"`` for the 2M anchors in the order of ``first``, then ``second``.

    >>> first, second = torch.eye(2), torch.tensor([[0.8, 0.6], [0.6, 0.8]])
    >>> hard_negative_loss(first, second, temperature=0.5, reduction="none")
    tensor([0.7532, 0.7532, 1.1913, 1.1913])
    """
    check_batch("hard_negative_loss", first=first, second=second)
    check_temperature("hard_negative_loss", temperature)
    check_known("form", form, FORMS)
    z = unit(torch.cat((first, second)))
    pairs, negatives = len(first), len(z) - 2

    def rows(block: Tensor, own: Tensor) -> Tensor:
        s = block @ z.T
        own, partner = own[:, None], ((own + pairs) % len(z))[:, None]
        positive = s.gather(1, partner).squeeze(1)
        negative = s.scatter(1, torch.cat((own, partner), 1), -torch.inf)
        if form == "plain":
            return -F.logsigmoid(positive - negative.logsumexp(1))
        if form == "code":
            top = negative.detach().amax(1, keepdim=True)
            e = (negative - top).exp()
            weighted = top.squeeze(1) + (e.square().sum(1) / e.sum(1)).log() + math.log(negatives)
            return -F.logsigmoid(positive - weighted)
        alpha = (s.scatter(1, own, -torch.inf) - negative.logsumexp(1, keepdim=True) + math.log(negatives)).exp()
        exponent = (alpha * s).scatter(1, own, -torch.inf)
        if form == "paper-negatives":
            exponent = exponent.scatter(1, partner, positive[:, None])
        return exponent.logsumexp(1) - positive

    return reduced(by_blocks(rows, z / temperature, len(z)), reduction)


@in_full_precision
def nt_xent_loss(
    first: Tensor,
    second: Tensor,
    temperature: float = 0.05,
    hard_negatives: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """SimCSE's loss: first sides as anchors only, second sides as candidates::

        l_i = -log( exp(s(a_i, b_i)/temperature) / sum_j exp(s(a_i, b_j)/temperature) )

    Args:
        first, second: vectors [N, d], N >= 2; normalised inside (s is the cosine).
        temperature: 0.05 in SimCSE.
        hard_negatives: vectors [K, d], candidates of every row besides ``second`` (supervised SimCSE, K = N).
        reduction: ``"mean"``, or ``"none"`` for the rows.

    >>> first, second = torch.eye(2), torch.tensor([[0.8, 0.6], [0.6, 0.8]])
    >>> round(nt_xent_loss(first, second, temperature=0.5).item(), 4)
    0.513
    """
    check_batch("nt_xent_loss", first=first, second=second)
    check_temperature("nt_xent_loss", temperature)
    candidates = second
    if hard_negatives is not None:
        if hard_negatives.dim() != 2 or hard_negatives.shape[1] != first.shape[1]:
            raise TrainingError(
                f"nt_xent_loss needs hard_negatives [any number, {first.shape[1]}], but got "
                f"{list(hard_negatives.shape)}."
            )
        candidates = torch.cat((second, hard_negatives))
    return reduced(in_batch_cross_entropy(unit(first) / temperature, unit(candidates)), reduction)


@in_full_precision
def response_contrastive_loss(context: Tensor, response: Tensor, reduction: str = "mean") -> Tensor:
    """TOD-BERT's response contrastive loss, also DSE's fine-tuning loss for response selection::

        l_i = -log( exp(c_i · r_i) / sum_j exp(c_i · r_j) )

    Raw dot products: nothing is normalised and there is no temperature.

    >>> context, response = torch.tensor([[2.0, 0], [0, 1]]), torch.tensor([[1, 0.5], [0.5, 2]])
    >>> response_contrastive_loss(context, response, reduction="none")
    tensor([0.3133, 0.2014])
    """
    check_batch("response_contrastive_loss", context=context, response=response)
    return reduced(in_batch_cross_entropy(context, response), reduction)


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
