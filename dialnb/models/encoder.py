"""The encoder: a transformer plus pooling. Texts in, vectors out.

>>> encoder = load_encoder("mini")                                  # doctest: +SKIP
>>> encoder.encode(["book a table", "reserve a seat"]).shape        # doctest: +SKIP
(2, 256)

Any Hugging Face encoder works: the BERT family runs on packed tokens (no padding at all), others on length-sorted
padded chunks. Saved folders hold safetensors, tokenizer, a model card and the sentence-transformers layout.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dialnb.errors import DataError, check_known
from dialnb.files import digest_of
from dialnb.models import packed as packed_path
from dialnb.models.attention import NARROW, widened
from dialnb.models.graphs import Graphs
from dialnb.models.kept import kept
from dialnb.models.places import download_encoder, encoder_name
from dialnb.models.saving import (
    check_seal,
    check_size,
    check_weights,
    read_readout,
    read_weights,
    reading,
    save_encoder,
)
from dialnb.models.wordpieces import Wordpieces
from dialnb.seeding import seeded
from dialnb.tokens import Numbers, Packed, Tokens, pack

POOLINGS = ("mean", "cls", "pooler", "max")
KEPT = 51
"""Texts of a list that is worth keeping; fewer are encoded as soon as found."""
LOCAL = {"trust_remote_code": False, "local_files_only": True}


class Encoder(nn.Module):
    """Transformer, tokenizer and pooling.

    Args:
        transformer: a Hugging Face encoder (``AutoModel``).
        tokenizer: its fast tokenizer.
        pooling: "mean" over all positions (``[CLS]`` and ``[SEP]`` included), "cls", "pooler" or "max".
        name: how tables and cards call it.
        length: tokens that ``encode`` reads of a text unless told otherwise (default: all that fit).
        normalize: whether ``encode`` scales vectors to length one unless told otherwise.
        prompt: what ``encode`` puts before every text.
    """

    def __init__(
        self,
        transformer: Any,
        tokenizer,
        pooling: str = "mean",
        name: str = "encoder",
        length: int | None = None,
        normalize: bool = False,
        prompt: str = "",
    ) -> None:
        super().__init__()
        check_known("pooling", pooling, POOLINGS)
        self.transformer = transformer
        self.wordpieces = Wordpieces(tokenizer)
        self.pooling = pooling
        self.name = name
        self.length = min(length or self.max_length, self.max_length)
        self.normalize = normalize
        self.prompt = prompt
        self.dtype: torch.dtype | None = None  # precision of the computation; None: that of the weights
        self.attention_dropout = True
        self.graphs: Graphs | None = None  # recorded passes, while something trains the encoder on a GPU
        self.cache: Path | None = None  # a folder in which `encode` keeps the vectors of long lists of texts
        self.packed = packed_path.supports(transformer)

    @property
    def tokenizer(self):
        return self.wordpieces.tokenizer

    @property
    def device(self) -> torch.device:
        return next(self.transformer.parameters()).device

    @property
    def dim(self) -> int:
        return self.transformer.config.hidden_size

    @property
    def max_length(self) -> int:
        """The longest sequence the position table can take."""
        limit = getattr(self.transformer.config, "max_position_embeddings", None) or 512
        table = getattr(getattr(self.transformer, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)  # RoBERTa and its kin count positions from there
        return limit if padding is None else limit - padding - 1

    def clone(self) -> Encoder:
        """A deep copy with its own weights; the tokenizer is shared."""
        twin = copy.copy(self)
        twin.graphs = twin.cache = None
        twin._modules = dict(self._modules)
        twin.transformer = copy.deepcopy(self.transformer)
        return twin

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, truncate: str = "right", cache: Path | None = None
    ) -> Tokens:
        """Token ids with special tokens, at most ``max_length`` each (default: the encoder's own ``length``);
        ``truncate`` names the side that is cut. The folder ``cache`` keeps them for whoever asks for the same texts."""
        longest = self.length if max_length is None else max_length
        return self.wordpieces(texts, min(longest, self.max_length), truncate, cache)

    def hidden(self, tokens: Tokens) -> tuple[Tensor, Packed]:
        """Last hidden states of real tokens, ``[tokens, width]`` in packed order, and the packing."""
        batch = pack(tokens, self.device)
        return (self.states(batch) if self.packed else self._padded_hidden(tokens, batch)), batch

    def states(self, batch: Packed, first_only: bool = False) -> Tensor:
        """As ``hidden``, for a batch that is packed already (BERT family only); or its first tokens' states only."""
        return (self.graphs or self.forward)(batch, first_only)

    def forward(self, batch: Packed, first_only: bool) -> Tensor:
        if self.dtype in NARROW:
            packed_path.small_products.keep()
        return packed_path.packed_forward(self.transformer, batch, self.dtype, self.attention_dropout, first_only)

    def _padded_hidden(self, tokens: Tokens, batch: Packed, chunk: int = 64) -> Tensor:
        """For transformers outside the BERT family: length-sorted chunks, padded within the chunk only."""
        order = torch.argsort(batch.rank).cpu().numpy()
        narrow = self.dtype in NARROW
        rows = []
        for start in range(0, len(order), chunk):
            part = tokens[order[start : start + chunk]]
            ids, mask = (torch.from_numpy(array).to(self.device) for array in part.padded(self.wordpieces.pad_id))
            inputs = {"input_ids": ids, "attention_mask": mask}
            if part.types is not None and hasattr(self.transformer.embeddings, "token_type_embeddings"):
                types = torch.from_numpy(part.types.astype(np.int64)).to(self.device)
                inputs["token_type_ids"] = torch.zeros_like(ids).masked_scatter_(mask.bool(), types)
            with torch.autocast(self.device.type, self.dtype, enabled=narrow):
                states = self.transformer(**inputs).last_hidden_state
            rows.append(states[mask.bool()])
        return torch.cat(rows)

    def pool(self, states: Tensor, batch: Packed, pooling: str | None = None) -> Tensor:
        """One vector per sequence, float32 or wider, in the caller's order.

        ``states`` are those of all tokens, or, enough for "cls" and "pooler", of the sequences' first tokens.
        """
        pooling = pooling or self.pooling
        check_known("pooling", pooling, POOLINGS)
        if pooling in ("mean", "max"):
            vectors = torch.segment_reduce(widened(states), pooling, lengths=batch.lengths, axis=0, unsafe=True)
            return vectors[batch.rank]
        if len(states) > len(batch.rank):
            states = states[batch.starts[:-1].long()]
        first = states[batch.rank]
        if pooling == "pooler":
            pooler = getattr(self.transformer, "pooler", None)
            if pooler is None:
                raise DataError(f"encoder {self.name!r} has no pooler layer: use pooling='cls' or 'mean'")
            first = torch.tanh(packed_path.linear(first, packed_path.part_of(pooler.dense)))
        return widened(first)

    def embed(self, tokens: Tokens, pooling: str | None = None) -> Tensor:
        """Differentiable vectors ``[n, dim]`` of tokenised texts; ``train()``/``eval()`` decide on dropout."""
        if self.packed and (pooling or self.pooling) in ("cls", "pooler"):
            batch = pack(tokens, self.device)
            return self.pool(self.states(batch, first_only=True), batch, pooling)
        return self.pool(*self.hidden(tokens), pooling)

    @packed_path.small_products
    @torch.inference_mode()
    def encode(
        self,
        texts: Sequence[str],
        max_length: int | None = None,
        batch_size: int = 512,
        normalize: bool | None = None,
        pooling: str | None = None,
        truncate: str = "right",
    ) -> np.ndarray:
        """Vectors ``[len(texts), dim]`` (float32) in the order of ``texts``, without dropout.

        ``max_length``, ``normalize`` and ``pooling`` default to the encoder's own, which are also what is saved.
        ``batch_size`` counts texts of 32 tokens: shorter texts travel in larger batches. A text that is said again
        and again, as in dialogues, is encoded once. An empty string is encoded as its special tokens; an empty list
        gives an array of shape ``(0, dim)``.
        """
        if isinstance(texts, str):
            raise TypeError("encode takes a list of texts, not one string: write encode([text])")
        reading = max_length, batch_size, normalize, pooling, truncate
        if self.cache is None or len(texts) < KEPT:
            return self._encode(texts, *reading)
        key = digest_of(json.dumps([self._state(), *reading, *texts]))
        path = self.cache / f"{key[:32]}.safetensors"
        return kept(path, lambda: {"vectors": self._encode(texts, *reading)})["vectors"]

    def _state(self) -> list[Any]:
        """What decides the vectors of a text: weights, word pieces, and how the encoder reads."""
        weights = hashlib.sha256()
        for name, tensor in self.state_dict().items():
            weights.update(name.encode() + tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        own = self.pooling, self.length, self.normalize, self.prompt, str(self.dtype)
        return [weights.hexdigest(), self.wordpieces.fingerprint(), *own]

    def _encode(
        self,
        texts: Sequence[str],
        max_length: int | None,
        batch_size: int,
        normalize: bool | None,
        pooling: str | None,
        truncate: str,
    ) -> np.ndarray:
        numbers = Numbers()
        rows = numbers.of(texts)
        tokens = self.tokenize([self.prompt + text for text in numbers], max_length, truncate)
        out = np.empty((len(tokens), self.dim), np.float32)
        with evaluating(self):
            for part in by_budget(tokens.lengths, max(1, batch_size) * min(max_length or self.length, 32)):
                vectors = self.embed(tokens[part], pooling)
                if self.normalize if normalize is None else normalize:
                    vectors = F.normalize(vectors, dim=-1)
                out[part] = vectors.float().cpu().numpy()
        return out[rows]

    def save(self, folder: str | Path, card: str | None = None, dtype: torch.dtype | None = None) -> Path:
        """Write safetensors, tokenizer, model card and the sentence-transformers layout; loads in any of the three."""
        return save_encoder(self, Path(folder), card, dtype)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def by_budget(lengths: np.ndarray, budget: int) -> Iterator[np.ndarray]:
    """The numbers of all texts from the longest to the shortest, in runs of at most ``budget`` tokens (at least one
    text each)."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    start = before = 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        yield order[start:stop]
        start, before = stop, ends[stop - 1]


@contextlib.contextmanager
def _quiet_transformers():
    """No loading bars and no reports on unused weights for the time of a load."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _tokenizer(folder: Path):
    """The tokenizer of an encoder; of a broken file the libraries raise anything, of a missing one they make one up."""
    import transformers

    try:
        found = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        if len(found.get_vocab()) > len(found.all_special_ids):
            return found
        trouble = "it has no words"
    except Exception as error:
        trouble = str(error).splitlines()[0] if isinstance(error, OSError) else "it is broken"
    raise DataError(
        f"the tokenizer of encoder '{folder}' cannot be used (tokenizer.json, tokenizer_config.json): {trouble}"
    )


def load_encoder(
    name_or_path: str | Path, pooling: str | None = None, device: str | torch.device | None = None
) -> Encoder:
    """Load an encoder: a local folder, a bundled name ("mini"), or a Hugging Face hub id, which is looked for in the
    hub's cache and in mirrors (DIALNB_MIRROR) before the hub is asked.

    Weights are read from safetensors only, none may be missing, and no remote code is run. Length, prompt, pooling and
    normalisation are what the folder says (sentence-transformers layout), else all that fits, none, "mean" and none;
    ``pooling`` given here overrules everything that follows the transformer. A folder that dialnb saved is checked
    against its hashes.
    """
    name, folder = encoder_name(name_or_path), download_encoder(name_or_path)
    with reading(folder):
        transformer, tokenizer = load_parts(folder, reads_pooler=pooling == "pooler")
        readout, lowercase = read_readout(folder, pooling)
        readout["length"] = readout["length"] or tokenizer.model_max_length
        encoder = Encoder(transformer, tokenizer, name=name, **readout).eval()
        if lowercase and tokenizer.tokenize("ABC") != tokenizer.tokenize("abc"):
            raise DataError(f"{name} asks for texts in lower case, but its tokenizer tells the cases apart")
        if not np.isfinite(encoder.encode(["a", "\N{SNOWMAN}"])).all():  # and what fails does so here, not in a run
            raise DataError(f"the encoder in {folder} gives vectors that are no numbers: take another copy")
    encoder.transformer.to(device or default_device())
    return encoder


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_parts(folder: Path, kind: str = "AutoModel", reads_pooler: bool = True) -> tuple[Any, Any]:
    """The transformer in a folder, of a ``kind`` of the library, and its tokenizer; what cannot be used is refused, and
    so is a transformer of which weights are missing, but for a pooler that nobody reads."""
    import transformers

    check_seal(folder)
    config = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
    config._attn_implementation = None  # the library's choice: a file may name code of the hub
    if kind == "AutoModel" and config.model_type in ("t5", "mt5"):
        kind = "AutoModelForTextEncoding"  # without the decoder
    weights = read_weights(folder)
    check_size(getattr(config, "num_hidden_layers", 0), len(weights), "layers", folder)
    with _quiet_transformers():
        with torch.device("meta"):
            draft = getattr(transformers, kind).from_config(config, trust_remote_code=False)
        check_size(draft.num_parameters(), sum(map(torch.numel, weights.values())), "weights", folder)
        with seeded(0):  # for a pooler that the files lack
            transformer, report = type(draft).from_pretrained(
                None,  # else files of the folder decide what else is read
                config=config,
                state_dict=weights,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        transformer.name_or_path = transformer.config.name_or_path = str(folder)
        tokenizer = _tokenizer(folder)
    check_weights(transformer, report, folder, reads_pooler)
    largest, rows = max(tokenizer.get_vocab().values()), transformer.get_input_embeddings().num_embeddings
    if largest >= rows:
        raise DataError(f"the tokenizer of {folder} numbers its words up to {largest}, but it has {rows} word vectors")
    return transformer, tokenizer
