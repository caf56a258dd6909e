"""The papers' claims: what they state (`definitions`), how they are judged (`judge`), and the verdicts in words."""

from dialnb.claims.definitions import Claim, load_claims, parse_claims
from dialnb.claims.judge import Case, judge, judge_claims, training_shares
from dialnb.claims.verdicts import (
    FAILS,
    HOLDS,
    MARKS,
    NOT_RUN,
    VERDICTS,
    Judged,
    Verdict,
    interval_text,
    strength,
    verdict_text,
)

__all__ = [
    "FAILS",
    "HOLDS",
    "MARKS",
    "NOT_RUN",
    "VERDICTS",
    "Case",
    "Claim",
    "Judged",
    "Verdict",
    "interval_text",
    "judge",
    "judge_claims",
    "load_claims",
    "parse_claims",
    "strength",
    "training_shares",
    "verdict_text",
]
