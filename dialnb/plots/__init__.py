"""Figures: every function takes a data frame and arguments that fit in JSON, and returns a matplotlib figure.

They know nothing of training, so that a figure can be drawn again from its stored data, in another style or format.
"""

from dialnb.plots.bars import grouped_bars
from dialnb.plots.curves import scores_by_epoch, sweep, training_curves
from dialnb.plots.dialogues import manipulations, scored_replies
from dialnb.plots.overview import overview
from dialnb.plots.pairs import pair_construction
from dialnb.plots.spaces import projection_panels, uniformity_alignment
from dialnb.plots.style import PALETTE, STYLE, save

__all__ = [
    "PALETTE",
    "STYLE",
    "grouped_bars",
    "manipulations",
    "overview",
    "pair_construction",
    "projection_panels",
    "save",
    "scored_replies",
    "scores_by_epoch",
    "sweep",
    "training_curves",
    "uniformity_alignment",
]
