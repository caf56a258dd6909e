"""Runs: notebooks executed headless, with progress, and what came of them."""
