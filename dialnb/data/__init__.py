"""Bytes become records: sources, the store that verifies them, one reader per family of formats, cached datasets."""

from dialnb.data.datasets import Dataset, load
from dialnb.data.own import from_csv, from_jsonl

__all__ = ["Dataset", "from_csv", "from_jsonl", "load"]
