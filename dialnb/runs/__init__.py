"""Runs: profiles, cached stages, notebooks executed headless, provenance, packs for machines without a network."""

from dialnb.runs.profiles import Settings, load_profiles
from dialnb.runs.run import Run, start

__all__ = ["Run", "Settings", "load_profiles", "start"]
