"""Texts to token ids, once: special tokens added here, truncation on either side, results cached on disk by content."""

import json
from collections.abc import Sequence
from pathlib import Path

from dialnb.errors import check_known
from dialnb.files import digest_of
from dialnb.models.kept import Arrays, kept
from dialnb.tokens import Tokens

BLOCK = 20_000
SIDES = ("left", "right")
MARK = "[SEP]"
"""What parts the utterances of a text; a tokenizer with another separator reads that."""


class Wordpieces:
    """A tokenizer as a function: ``wordpieces(texts, max_length, truncate) -> Tokens``."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        whole = tokenizer("a")["input_ids"]
        word = tokenizer("a", add_special_tokens=False)["input_ids"]
        at = next(i for i in range(len(whole)) if whole[i : i + len(word)] == word)
        self.prefix, self.suffix = whole[:at], whole[at + len(word) :]
        self.pad_id = tokenizer.pad_token_id or 0
        self.separator = getattr(tokenizer, "sep_token", None) or MARK

    def fingerprint(self) -> str:
        """Hash of everything that decides the ids."""
        backend = self._backend()
        rules = backend.to_str() if backend is not None else repr(sorted(self.tokenizer.get_vocab().items()))
        return digest_of(rules + self.separator.removeprefix(MARK))

    def __call__(
        self, texts: Sequence[str], max_length: int, truncate: str = "right", cache: Path | None = None
    ) -> Tokens:
        """Token ids of every text, at most ``max_length`` each with special tokens; ``truncate`` names the side that
        is cut. What was tokenised before is read from the folder ``cache``; of several processes that ask at once one
        does the work and the others wait for it."""
        check_known("side to truncate", truncate, SIDES)
        room = max_length - len(self.prefix) - len(self.suffix)
        if room < 1:
            raise ValueError(f"max_length {max_length} leaves no room beside the special tokens")
        if cache is None:
            return self._tokenise(texts, room, truncate)
        key = digest_of(json.dumps([self.fingerprint(), max_length, truncate, *texts]))
        path = Path(cache) / f"tokens-{key[:32]}.safetensors"
        return Tokens(**kept(path, lambda: self._arrays(texts, room, truncate)))

    def _arrays(self, texts: Sequence[str], room: int, truncate: str) -> Arrays:
        tokens = self._tokenise(texts, room, truncate)
        return {"ids": tokens.ids, "offsets": tokens.offsets}

    def _tokenise(self, texts: Sequence[str], room: int, truncate: str) -> Tokens:
        kept = slice(room) if truncate == "right" else slice(-room, None)
        blocks = [Tokens.from_lists([])]
        for start in range(0, len(texts), BLOCK):
            rows = self._bare([text.replace(MARK, self.separator) for text in texts[start : start + BLOCK]])
            blocks.append(Tokens.from_lists([*self.prefix, *row[kept], *self.suffix] for row in rows))
        return Tokens.concatenate(blocks)

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
