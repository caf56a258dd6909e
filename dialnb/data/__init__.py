"""Bytes become records: sources, the store that verifies them, one reader per family of formats, cached datasets."""

from __future__ import annotations

from dialnb.data.datasets import Dataset, load
from dialnb.data.own import from_csv, from_jsonl

__all__ = ["Dataset", "from_csv", "from_jsonl", "load"]
