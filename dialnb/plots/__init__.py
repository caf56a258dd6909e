"""Figures: every function takes a data frame and arguments that fit in JSON, and returns a matplotlib figure.

They know nothing of training, so that a figure can be drawn again from its stored data, in another style or format.
"""

from dialnb import lazily
from dialnb.plots.style import PALETTE, STYLE, save

ROOMS = {
    "bars": "grouped_bars",
    "curves": "scores_by_epoch sweep training_curves",
    "dialogues": "manipulations scored_replies",
    "matching": "architecture matching_matrices",
    "pairs": "pair_construction",
    "ranks": "critical_difference rank_grid",
    "spaces": "highlighted_panels projection_panels uniformity_alignment",
    "templates": "template_clusters template_losses template_system",
    "windows": "frequency_share window_pairs",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
FIGURES = {f"{draw.__module__}:{draw.__name__}": draw for draw in map(__getattr__, __all__)}
"""The closed list of what a stored figure may be drawn again by."""

__all__ += ["FIGURES", "PALETTE", "STYLE", "save"]
