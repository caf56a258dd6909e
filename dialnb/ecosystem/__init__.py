"""What is ours in the libraries of others: losses for sentence-transformers, tasks for mteb.

>>> from dialnb.ecosystem import losses
>>> losses.HardNegativeNTXentLoss.paper
'dse'
"""

from pathlib import Path

FILE = Path(__file__).with_name("citations.bib")


def citation(slug: str) -> str:
    """Find the BibTeX entry of a paper.

    >>> citation("tadse").splitlines()[0]
    '@article{tadse,'
    """
    entries = FILE.read_text("utf-8").split("\n\n")
    return next(entry.strip() for entry in entries if f"{{{slug}," in entry)
