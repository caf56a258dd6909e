"""The sentence that stands in the place of a figure that is not drawn."""

from __future__ import annotations

from dialnb.runs.run import Sentence


def absent(run, figure: str, reason: str) -> Sentence:
    """Note that a figure is not drawn, and say so in its place."""
    run.not_run(figure, reason=reason)
    return Sentence(f"Not drawn: {reason}.")
