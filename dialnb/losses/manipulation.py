"""UMS: response selection with the three utterance-manipulation tasks beside it."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from dialnb.errors import TrainingError
from dialnb.losses._shared import check_same_shape, in_full_precision, masked_mean


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
