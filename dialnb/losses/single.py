"""Losses of single inputs: masked words, next sentence and replaced tokens of language modelling, and UMS's response
selection with the three utterance-manipulation tasks beside it."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from dialnb.errors import TrainingError
from dialnb.losses._shared import check_same_shape, in_full_precision, masked_mean


@in_full_precision
def masked_language_model_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the masked positions, 0 (with a zero gradient) when nothing is masked.

    Logits over a vocabulary are large and only some 15 % of positions count: pick the masked positions *before* the
    output layer and pass those rows alone where speed matters.

    Args:
        logits: [..., V].
        labels: [...], the word piece that was masked, -100 elsewhere.

    >>> import torch
    >>> masked_language_model_loss(torch.zeros(2, 4), torch.tensor([1, -100]))
    tensor(1.3863)
    """
    if logits.shape[:-1] != labels.shape:
        raise TrainingError(
            f"masked_language_model_loss needs logits [..., V] and labels [...], but got {list(logits.shape)} "
            f"and {list(labels.shape)}."
        )
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100, reduction="none")
    return masked_mean(losses, labels.flatten() != -100)


@in_full_precision
def next_sentence_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """BERT's next-sentence loss: mean cross-entropy of logits [B, 2]; label 0 means "is next", 1 "is random".

    >>> import torch
    >>> next_sentence_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.1269)
    """
    if logits.dim() != 2 or logits.shape != (len(labels), 2):
        raise TrainingError(
            f"next_sentence_loss needs logits [B, 2] and labels [B], but got {list(logits.shape)} and "
            f"{list(labels.shape)}."
        )
    return F.cross_entropy(logits, labels)


@in_full_precision
def replaced_token_loss(logits: Tensor, replaced: Tensor) -> Tensor:
    """ELECTRA's detection loss: mean binary cross-entropy over the real tokens of the batch.

    Args:
        logits: [n], high where the discriminator believes that the token was replaced.
        replaced: [n], 1 where the generator's token differs from the original one.

    >>> import torch
    >>> replaced_token_loss(torch.tensor([0.0]), torch.tensor([1]))
    tensor(0.6931)
    """
    check_same_shape("replaced_token_loss", logits=logits, replaced=replaced)
    return F.binary_cross_entropy_with_logits(logits, replaced.to(logits.dtype), reduction="none").mean()


@in_full_precision
def manipulation_task_loss(logits: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    """One auxiliary term of UMS (insertion, deletion or search)::

        L_task = mean over rows b of [ mean over the row's special tokens m of BCE(p_bm, 1[m = target_b]) ]

    Args:
        logits: [P, K], one per special token, of the rows with label 1.
        mask: [P, K], which of them exist. A row with none is not counted; with no rows at all the loss is 0.
        target: [P], position of the right token among the K.

    >>> logits = torch.tensor([[0.5, -1.0, 2.0, 0.1, -0.3]])
    >>> manipulation_task_loss(logits, torch.ones(1, 5), torch.tensor([2]))
    tensor(0.5426)
    """
    check_same_shape("manipulation_task_loss", logits=logits, mask=mask)
    if logits.dim() != 2 or target.shape != logits.shape[:1]:
        raise TrainingError(
            "manipulation_task_loss needs logits [P, K] and one target per row [P], but got "
            f"{list(logits.shape)} and {list(target.shape)}."
        )
    mask = mask.bool()
    hit = target[:, None] == torch.arange(logits.shape[1], device=logits.device)
    losses = F.binary_cross_entropy_with_logits(logits, hit.to(logits.dtype), reduction="none")
    return masked_mean(masked_mean(losses, mask), mask.any(1))


@in_full_precision
def manipulation_loss(
    selection_logits: Tensor, labels: Tensor, tasks: Mapping[str, tuple[Tensor, Tensor, Tensor]]
) -> Tensor:
    """UMS's objective, ``L = L_rs + L_INS + L_DEL + L_SRCH``, all with weight 1.

    ``L_rs`` is the mean binary cross-entropy of response selection over all rows.

    Args:
        selection_logits: [B].
        labels: [B], 1 for the true response.
        tasks: name to (logits, mask, target) of `manipulation_task_loss`, for the tasks that are on.

    >>> manipulation_loss(torch.tensor([1.2, -0.4]), torch.tensor([1, 0]), {})
    tensor(0.3881)
    """
    check_same_shape("manipulation_loss", selection_logits=selection_logits, labels=labels)
    selection = F.binary_cross_entropy_with_logits(selection_logits, labels.to(selection_logits.dtype))
    return sum((manipulation_task_loss(*task) for task in tasks.values()), selection)
