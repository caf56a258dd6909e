"""The papers: what they print (`papers`) and state (`definitions`), and how rows of ours are held against both.

Everything that a notebook asks for can be imported from here; a room is entered when one of its names is asked for.
"""

from __future__ import annotations

from importlib import import_module

_PLACES = {
    **dict.fromkeys(("Claim", "load_claims", "parse_claims"), "definitions"),
    **dict.fromkeys(("Case", "training_shares"), "case"),
    **dict.fromkeys(("judge", "judge_claims"), "judging"),
    **dict.fromkeys(("compare_table", "load_paper", "published"), "papers"),
    **dict.fromkeys(("FAILS", "HOLDS", "MARKS", "NOT_RUN", "VERDICTS", "Judged", "Verdict"), "verdicts"),
    **dict.fromkeys(("interval_text", "strength", "verdict_text"), "verdicts"),
}
__all__ = sorted(_PLACES)


def __getattr__(name: str):
    if name in _PLACES:
        return getattr(import_module(f"dialnb.claims.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'dialnb.claims' has no attribute {name!r}")
