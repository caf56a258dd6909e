"""One training loop for every method: objectives differ, the loop does not."""

from dialnb.training.loop import TrainingResult, train
from dialnb.training.objective import Batch, Examples, Objective
from dialnb.training.settings import TrainingSettings

__all__ = ["Batch", "Examples", "Objective", "TrainingResult", "TrainingSettings", "train"]
