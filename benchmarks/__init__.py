"""Measurements that are printed, not asserted: run with `python -m benchmarks.NAME`."""
