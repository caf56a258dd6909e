"""One training loop for every method: objectives differ, the loop does not."""

from dialnb import lazily

ROOMS = {
    "loop": "Batch Examples TrainingResult train",
    "objective": "Objective",
    "settings": "TrainingSettings",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
