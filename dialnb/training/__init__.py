"""One training loop for every method: objectives differ, the loop does not."""

from dialnb.examples.batches import Batch, Examples
from dialnb.training.loop import TrainingResult, train
from dialnb.training.objective import Objective
from dialnb.training.settings import TrainingSettings

__all__ = ["Batch", "Examples", "Objective", "TrainingResult", "TrainingSettings", "train"]
