"""Bytes become records: sources (where bytes come from), store (how they get here, verified), readers (what they say)."""
