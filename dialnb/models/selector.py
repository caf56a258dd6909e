"""The cross-encoder of UMS: one encoder reads context and response together, four heads read the encoder."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError
from dialnb.examples.manipulations import MARKS, MAX_LENGTH, TASKS, manipulation_examples
from dialnb.examples.templates import SYMBOL
from dialnb.files import writing
from dialnb.models.encoder import Encoder, by_budget, evaluating, load_encoder
from dialnb.models.packed import small_products
from dialnb.models.places import HEADS
from dialnb.models.saving import reading, require_finite, seal
from dialnb.models.wordpieces import Wordpieces
from dialnb.tokens import Numbers


def add_marks(encoder: Encoder, seed: int = 0) -> Encoder:
    """Give ``encoder`` (in place) the tokens [EOT], [INS], [DEL] and [SRCH] (UMS)."""
    return add_tokens(encoder, list(MARKS.values()), seed)


def add_placeholders(encoder: Encoder, seed: int = 0, placeholders: Sequence[str] = (SYMBOL,)) -> Encoder:
    """Give ``encoder`` (in place) the token {SLOT}, or one for each type of slots (TaDSE). As word pieces it would be
    three, and most templates of ATIS longer than the 32 that are read."""
    return add_tokens(encoder, list(placeholders), seed)


def add_tokens(encoder: Encoder, tokens: list[str], seed: int) -> Encoder:
    """Give ``encoder`` (in place) further tokens with random embeddings.

    Its tokenizer is copied first, since clones share it. Tokens that are there already, as after post-training, keep
    their embeddings.
    """
    tokenizer = copy.deepcopy(encoder.tokenizer)
    known = len(tokenizer)
    if not tokenizer.add_tokens(tokens, special_tokens=True):
        return encoder
    encoder.wordpieces = Wordpieces(tokenizer)
    table = encoder.transformer.get_input_embeddings()
    if len(tokenizer) > table.num_embeddings:
        table = encoder.transformer.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    new = torch.randn(len(tokenizer) - known, table.embedding_dim, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        table.weight[known : len(tokenizer)] = (new * encoder.transformer.config.initializer_range).to(table.weight)
    return encoder


class Selector(nn.Module):
    """An encoder with the marks of the manipulations, and a head (``Dropout(0.2)``, ``Linear(d, 1)``) for response
    selection (read at [CLS], no pooler) and for each auxiliary task (read at its marks).

    Train it with ``ManipulationObjective(selector.heads)``; the objective and the selector share the heads.

    >>> selector = Selector(load_encoder("mini"))                            # doctest: +SKIP
    >>> selector.score(groups)                                               # doctest: +SKIP
    [[0.52, 0.49, ...], ...]
    """

    def __init__(self, encoder: Encoder, max_length: int = MAX_LENGTH, dropout: float = 0.2, seed: int = 0) -> None:
        super().__init__()
        self.encoder = add_marks(encoder, seed)
        self.max_length = min(max_length, encoder.max_length)
        self.heads: Any = nn.ModuleDict()
        for name in ("selection", *TASKS):
            self.heads[name] = nn.Sequential(nn.Dropout(dropout), nn.Linear(encoder.dim, 1))
        generator, bound = torch.Generator().manual_seed(seed), encoder.dim**-0.5
        for parameter in self.heads.parameters():  # nn.Linear's own distribution, from a generator of our own
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.to(encoder.device).eval()

    @small_products
    @torch.inference_mode()
    def score(self, groups: Sequence[SelectionGroup], batch_tokens: int | None = None) -> list[list[float]]:
        """Probability of every candidate of every group to be the response.

        Inputs are prepared in parts, a GPU scoring one while the next is prepared. They travel in batches of about
        ``batch_tokens`` real tokens, sorted by length and without padding (by default 65,536 on a GPU, and on a CPU
        4,096, which its caches hold); equal inputs are scored once, so that they tie exactly.
        """
        part, budget = (1 << 14, 1 << 12) if self.encoder.device.type == "cpu" else (1 << 11, 1 << 16)
        sizes = [len(group.candidates) for group in groups]
        if not sum(sizes):
            return [[] for _ in groups]
        examples = manipulation_examples(self.encoder, groups, self.max_length, tasks=())
        equal = Numbers().of(zip(examples.contexts, examples.responses))
        rows, order, logits = np.unique(equal, return_index=True)[1], [], []
        with evaluating(self):  # the device is waited for once, after all batches
            for start in range(0, len(rows), part):
                tokens = examples.selections(rows[start : start + part])
                for batch in by_budget(tokens.lengths, batch_tokens or budget):
                    order.append(start + batch)
                    logits.append(self.heads["selection"](self.encoder.embed(tokens[batch], "cls")))
        scores = torch.zeros(len(rows))
        scores[torch.from_numpy(np.concatenate(order))] = torch.cat(logits).squeeze(-1).sigmoid().float().cpu()
        return [part.tolist() for part in scores[equal].split(sizes)]

    def save(self, folder: str | Path, card: str | None = None, dtype: torch.dtype | None = None) -> Path:
        """Write the encoder's folder (loads as any encoder) with the heads beside it."""
        from safetensors.torch import save_file

        folder = self.encoder.save(folder, card, dtype)
        facts = json.dumps({"max_length": self.max_length, "dropout": self.heads["selection"][0].p})
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in self.heads.state_dict().items()}
        with writing(folder):
            save_file(stored, folder / HEADS, metadata={"facts": facts})  # of several keys the order would be any
        seal(folder)
        return folder

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device | None = None) -> Selector:
        """A selector as :meth:`save` left it."""
        from safetensors import safe_open

        path = Path(folder) / HEADS
        if not path.is_file():
            raise DataError(f"{folder} holds no {HEADS}: it is not a folder that Selector.save wrote")
        encoder = load_encoder(folder, device=device)
        with reading(path.parent), safe_open(path, "pt") as stored:
            facts = {name: json.loads(text) for name, text in stored.metadata().items()}
            facts = facts.get("facts", facts)  # one by one, as they once were
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            selector = cls(encoder, facts["max_length"], facts["dropout"])
            require_finite(tensors, path)
            selector.heads.load_state_dict(tensors)
        return selector
