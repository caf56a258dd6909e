"""Looking around: panels for one's own sentences and dialogues before every method (notebooks/00_tour.ipynb)."""

from dialnb import lazily

ROOMS = {
    "methods": "parse train",
    "panels": "BEST Control lines_of panel table",
    "sentences": "Space neighbours similarities",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
