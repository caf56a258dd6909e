"""Faults tried on purpose: what becomes of damaged and hostile files, counted. See `python -m tools.audit`."""
