"""The papers: what they print (`papers`) and state (`definitions`), and how rows of ours are held against both.

Everything that a notebook asks for can be imported from here; a room is entered when one of its names is asked for.
"""

from dialnb import lazily

ROOMS = {
    "definitions": "Claim load_claims parse_claims",
    "case": "Case training_shares",
    "judging": "judge judge_claims",
    "comparison": "compare_table",
    "papers": "load_paper published",
    "verdict": "DECIDED FAILS HOLDS MARKS MEANINGS NEGATIVE NOT_RUN SCHEMA SIZES VERDICTS Judged Verdict "
    "interval_text strength verdict_text",
    "records": "effects verdicts",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
