"""Texts to token ids, once: special tokens added here, truncation on either side, results cached on disk by content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from dialnb.errors import UnknownName
from dialnb.tokens import Tokens

BLOCK = 20_000


class Wordpieces:
    """A tokenizer as a function: ``wordpieces(texts, max_length, truncate) -> Tokens``."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        probe = tokenizer("a")["input_ids"]
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        at = next(i for i in range(len(probe) - len(bare) + 1) if probe[i : i + len(bare)] == bare)
        self.prefix, self.suffix = probe[:at], probe[at + len(bare) :]
        self.pad_id = tokenizer.pad_token_id or 0

    def fingerprint(self) -> str:
        """Hash of everything that decides the ids."""
        backend = self._backend()
        said = backend.to_str() if backend is not None else repr(sorted(self.tokenizer.get_vocab().items()))
        return hashlib.sha256(said.encode()).hexdigest()

    def __call__(self, texts: Sequence[str], max_length: int, truncate: str = "right") -> Tokens:
        if truncate not in ("left", "right"):
            raise UnknownName("side to truncate", truncate, ("left", "right"))
        room = max_length - len(self.prefix) - len(self.suffix)
        if room < 1:
            raise ValueError(f"max_length {max_length} leaves no room beside the special tokens")
        parts = [Tokens(np.zeros(0, np.int32), np.zeros(1, np.int64))]
        for start in range(0, len(texts), BLOCK):
            rows = self._bare(list(texts[start : start + BLOCK]))
            rows = [row[:room] for row in rows] if truncate == "right" else [row[-room:] for row in rows]
            parts.append(self._with_special_tokens(rows))
        return Tokens.concatenate(parts)

    def _bare(self, texts: list[str]) -> list[list[int]]:
        backend = self._backend()
        if backend is None:
            return self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _backend(self):
        """The fast tokenizer without the truncation and padding that other callers may have left in it, or None."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            backend.no_truncation()
            backend.no_padding()
        return backend

    def _with_special_tokens(self, rows: list[list[int]]) -> Tokens:
        before, after = len(self.prefix), len(self.suffix)
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths + before + after, out=offsets[1:])
        ids = np.empty(offsets[-1], np.int32)
        special = np.zeros(offsets[-1], bool)
        for shift, token in enumerate(self.prefix):
            ids[offsets[:-1] + shift], special[offsets[:-1] + shift] = token, True
        for shift, token in enumerate(reversed(self.suffix), 1):
            ids[offsets[1:] - shift], special[offsets[1:] - shift] = token, True
        ids[~special] = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        return Tokens(ids, offsets)

    def cached(self, texts: Sequence[str], max_length: int, truncate: str, folder: Path) -> Tokens:
        """As a call, but read from ``folder`` when the same texts were tokenised before; of several processes that
        ask at once one does the work and the others wait for it."""
        from filelock import FileLock
        from safetensors.numpy import save_file

        key = hashlib.sha256(f"{self.fingerprint()}|{max_length}|{truncate}|{len(texts)}".encode())
        for text in texts:
            key.update(text.encode("utf-8", "surrogatepass") + b"\0")
        path = Path(folder) / f"tokens-{key.hexdigest()[:32]}.safetensors"
        if (known := _read(path)) is not None:
            return known
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if (known := _read(path)) is not None:
                return known
            tokens = self(texts, max_length, truncate)
            draft = path.with_suffix(f".{os.getpid()}.tmp")
            save_file({"ids": tokens.ids, "offsets": tokens.offsets}, draft)
            draft.replace(path)
            return tokens


def _read(path: Path) -> Tokens | None:
    """What is stored there; None where nothing is, or nothing that can be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return Tokens(**load_file(path))
    except (SafetensorError, OSError, TypeError):
        return None
