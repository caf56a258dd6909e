"""Figures: every function takes a data frame and arguments that fit in JSON, and returns a matplotlib figure.

They know nothing of training, so that a figure can be drawn again from its stored data, in another style or format.
"""

from dialnb.plots.bars import grouped_bars
from dialnb.plots.curves import scores_by_epoch, sweep, training_curves
from dialnb.plots.dialogues import manipulations, scored_replies
from dialnb.plots.matching import architecture, matching_matrices
from dialnb.plots.pairs import pair_construction
from dialnb.plots.ranks import critical_difference, rank_grid
from dialnb.plots.spaces import highlighted_panels, projection_panels, uniformity_alignment
from dialnb.plots.style import PALETTE, STYLE, save
from dialnb.plots.templates import template_clusters, template_losses, template_system
from dialnb.plots.windows import frequency_share, window_pairs

_DRAWN = [
    architecture,
    critical_difference,
    frequency_share,
    grouped_bars,
    highlighted_panels,
    manipulations,
    matching_matrices,
    pair_construction,
    projection_panels,
    rank_grid,
    scored_replies,
    scores_by_epoch,
    sweep,
    template_clusters,
    template_losses,
    template_system,
    training_curves,
    uniformity_alignment,
    window_pairs,
]
FIGURES = {f"{draw.__module__}:{draw.__name__}": draw for draw in _DRAWN}
"""The closed list of what a stored figure may be drawn again by."""

__all__ = ["FIGURES", "PALETTE", "STYLE", "save", *(draw.__name__ for draw in _DRAWN)]
