"""Looking around: one's own sentences, dialogues and candidates before every method (notebooks/00_tour.ipynb)."""

from dialnb.explore.dialogues import from_dialogue, preferences
from dialnb.explore.files import example, examples_of, score_own
from dialnb.explore.methods import Methods, train_methods
from dialnb.explore.sentences import Space, neighbours, similarities

__all__ = [
    "Methods",
    "Space",
    "example",
    "examples_of",
    "from_dialogue",
    "neighbours",
    "preferences",
    "score_own",
    "similarities",
    "train_methods",
]
