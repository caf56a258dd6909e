"""How to cite the papers, as BibTeX."""

from pathlib import Path

FILE = Path(__file__).with_name("citations.bib")


def citation(slug: str) -> str:
    """Find the BibTeX entry of a paper.

    >>> citation("tadse").splitlines()[0]
    '@article{tadse,'
    """
    entries = FILE.read_text(encoding="utf-8").split("\n\n")
    return next(entry.strip() for entry in entries if f"{{{slug}," in entry)
