"""DialogueCSE: matching-guided embeddings and their loss, and the Siamese baselines' loss."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from dialnb.errors import TrainingError, check_known
from dialnb.losses._shared import check_temperature, in_full_precision, reduced, unit

Attention = Callable[[Tensor], Tensor] | None
"""What weighs the turns of a context (I1)."""


def _pooled(tokens: Tensor, mask: Tensor) -> Tensor:
    """Masked mean over the tokens (second to last dimension); the zero vector where there are none."""
    return tokens.sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1)


def _without_padding(tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens with padding set to zero, whatever stood there, and the mask as booleans."""
    mask = mask.bool()
    return tokens.masked_fill(~mask[..., None], 0), mask


@in_full_precision
def matching_matrix(
    utterance_tokens: Tensor,
    utterance_mask: Tensor,
    response_tokens: Tensor,
    response_mask: Tensor,
) -> Tensor:
    """Token-by-token matching ``M = U R^T / sqrt(d)`` of one context turn with one response; padding gives zeros.

    This is the matrix of the paper, for plotting and for reading: the loss never forms it.

    Args:
        utterance_tokens, utterance_mask: [..., n, d] and [..., n].
        response_tokens, response_mask: [..., n_r, d] and [..., n_r].

    >>> U, R = torch.tensor([[1.0, 1], [9, 9]]), torch.tensor([[1.0, 0], [0, 1]])
    >>> matching_matrix(U, torch.tensor([1, 0]), R, torch.tensor([1, 1]))
    tensor([[0.7071, 0.7071],
            [0.0000, 0.0000]])
    """
    utterance, _ = _without_padding(utterance_tokens, utterance_mask)
    response, _ = _without_padding(response_tokens, response_mask)
    return utterance @ response.mT * response.shape[-1] ** -0.5


@in_full_precision
def matching_guided_embedding(
    context_tokens: Tensor,
    context_mask: Tensor,
    candidate_tokens: Tensor,
    candidate_mask: Tensor,
    aggregation: str = "I2",
    attention: Attention = None,
) -> Tensor:
    """Context-aware vector [B, m, d] of every candidate: pooled ``Rtilde`` of DialogueCSE.

    For turn ``U_i`` and candidate ``R``, both token matrices (section 3 of the paper)::

        M_i = U_i R^T / sqrt(d)        Rhat_i = M_i R
        I2:  Rtilde = mean_i Rhat_i    I1:  Rtilde = sum_i a_i Rhat_i,  a = softmax_i(FFN(Rhat_i))

    Each ``Rhat_i`` is pooled by a masked mean over the tokens of its turn before turns are combined, so that every turn
    weighs the same. Pooling commutes with the product, ``mean_rows(U_i R^T R) = mean_rows(U_i) R^T R``, hence a turn
    enters as its mean vector alone and no n x n_r matrix is formed.

    Args:
        context_tokens, context_mask: last-layer vectors [B, T, n, d] and mask [B, T, n]. A turn without tokens does not
            exist; a context without turns gives the zero vector.
        candidate_tokens, candidate_mask: [B, m, n_r, d] and [B, m, n_r]; the same context serves all m candidates.
        aggregation: ``"I1"`` or ``"I2"``.
        attention: for I1, maps pooled ``Rhat`` [B, m, T, d] to scores [B, m, T, 1] (two layers with ReLU).

    >>> U, R = torch.tensor([[[[1.0, 1], [0, 1]], [[1, 0], [9, 9]]]]), torch.eye(2)[None, None]
    >>> matching_guided_embedding(U, torch.tensor([[[1, 1], [1, 0]]]), R, torch.ones(1, 1, 2))
    tensor([[[0.5303, 0.3536]]])
    """
    check_known("aggregation", aggregation, ("I1", "I2"))
    _check_groups(context_tokens, context_mask, candidate_tokens, candidate_mask)
    context, context_mask = _without_padding(context_tokens, context_mask)
    candidates, _ = _without_padding(candidate_tokens, candidate_mask)
    turns, exists = _pooled(context, context_mask), context_mask.any(-1)[:, None, :, None]
    if aggregation == "I2":
        turns = turns.sum(1, keepdim=True) / exists[:, 0].sum(1, keepdim=True).clamp(min=1)
    matching = turns[:, None] @ candidates.mT
    aware = matching @ candidates * candidates.shape[-1] ** -0.5
    if aggregation == "I2":
        return aware.squeeze(2)
    if attention is None:
        raise TrainingError("aggregation I1 weighs the turns by a small network: pass it as attention, or use I2.")
    scores = attention(aware).reshape(*aware.shape[:-1], 1)
    weights = scores.masked_fill(~exists, torch.finfo(scores.dtype).min).softmax(2)
    return (weights * aware).sum(2)


@in_full_precision
def matching_guided_loss(
    context_tokens: Tensor,
    context_mask: Tensor,
    candidate_tokens: Tensor,
    candidate_mask: Tensor,
    temperature: float = 0.1,
    aggregation: str = "I2",
    attention: Attention = None,
    reduction: str = "mean",
) -> Tensor:
    """DialogueCSE's loss: pick the true response by how well each candidate agrees with its own context-aware version::

        sim_j = cos(pool(R_j), pool(Rtilde_j))
        l     = -log( exp(sim_1/temperature) / sum_{j=1..m} exp(sim_j/temperature) )        (Eq. 8)

    The first candidate of a group is the true one; a candidate without tokens does not exist and stays out of the sum.
    Arguments are those of `matching_guided_embedding`; the temperature is 0.1 in the main experiments.

    >>> U = torch.tensor([[[[1.0, 1], [0, 1]], [[1, 0], [9, 9]]]])
    >>> R = torch.tensor([[[[1.0, 0], [0, 1]], [[1, -1], [0, 1]]]])
    >>> round(matching_guided_loss(U, torch.tensor([[[1, 1], [1, 0]]]), R, torch.ones(1, 2, 2)).item(), 4)
    0.0629
    """
    check_temperature("matching_guided_loss", temperature)
    _check_candidates("matching_guided_loss", candidate_tokens)
    aware = matching_guided_embedding(
        context_tokens, context_mask, candidate_tokens, candidate_mask, aggregation, attention
    )
    candidates, mask = _without_padding(candidate_tokens, candidate_mask)
    similarity = (unit(_pooled(candidates, mask)) * unit(aware)).sum(-1)
    logits = (similarity / temperature).masked_fill(~mask.any(-1), -torch.inf)
    return reduced(-logits.log_softmax(1)[:, 0], reduction)


@in_full_precision
def siamese_matching_loss(context: Tensor, candidates: Tensor, reduction: str = "mean") -> Tensor:
    """Loss of the SiameseBERT baselines of DialogueCSE: softmax of dot products over a group's own candidates::

        l = -log( exp(c · r_1) / sum_{j=1..m} exp(c · r_j) ),  r_1 the true response

    Args:
        context: vectors [B, d] after the matching layer; not normalised.
        candidates: vectors [B, m, d], m >= 2, the first true; not normalised.

    >>> siamese_matching_loss(torch.tensor([[1.0, 0]]), torch.tensor([[[1.0, 0], [0, 1]]]))
    tensor(0.3133)
    """
    if context.dim() != 2 or candidates.dim() != 3 or candidates.shape[::2] != context.shape:
        raise TrainingError(
            "siamese_matching_loss needs context [B, d] and candidates [B, m, d], but got "
            f"{list(context.shape)} and {list(candidates.shape)}."
        )
    _check_candidates("siamese_matching_loss", candidates)
    logits = (candidates @ context[..., None]).squeeze(-1)
    return reduced(
        F.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long), reduction="none"), reduction
    )


def _check_candidates(loss: str, candidates: Tensor) -> None:
    if candidates.dim() > 1 and candidates.shape[1] < 2:
        raise TrainingError(
            f"{loss} needs the true response and at least 1 negative per group, but got {candidates.shape[1]} "
            "candidate(s); draw more negatives."
        )


def _check_groups(context: Tensor, context_mask: Tensor, candidates: Tensor, candidate_mask: Tensor) -> None:
    shapes = [list(t.shape) for t in (context, context_mask, candidates, candidate_mask)]
    fits = context.dim() == candidates.dim() == 4 and context.shape[::3] == candidates.shape[::3]
    if not fits or shapes[0][:3] != shapes[1] or shapes[2][:3] != shapes[3]:
        raise TrainingError(
            "matching needs context tokens [B, T, n, d] with mask [B, T, n] and candidate tokens [B, m, n_r, d] with "
            f"mask [B, m, n_r], but got {', '.join(map(str, shapes))}."
        )
