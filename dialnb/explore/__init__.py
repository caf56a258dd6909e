"""Looking around: one's own sentences, dialogues and candidates before every method (notebooks/00_tour.ipynb)."""

from dialnb import lazily

ROOMS = {
    "dialogues": "from_dialogue preferences",
    "methods": "Methods example examples_of score_own train_methods",
    "sentences": "Space neighbours similarities",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
