"""Figures: every function takes a data frame and arguments that fit in JSON, and returns a matplotlib figure.

They know nothing of training, so that a figure can be drawn again from its stored data, in another style or format.
"""

from dialnb import lazily
from dialnb.plots.style import PALETTE, STYLE, save

ROOMS = {
    "curves": "grouped_bars scores_by_epoch sweep training_curves",
    "dialogues": "frequency_share manipulations pair_construction scored_replies window_pairs",
    "matching": "architecture matching_matrices",
    "ranks": "critical_difference rank_grid",
    "spaces": "highlighted_panels projection_panels uniformity_alignment",
    "templates": "template_clusters template_losses template_system",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
FIGURES = {name: __getattr__(name) for name in __all__}
"""The closed list of what a stored figure may be drawn again by."""

__all__ += ["FIGURES", "PALETTE", "STYLE", "save"]
