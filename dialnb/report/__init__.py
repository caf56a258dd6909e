"""The report: a static site that opens from disk, without network: what ran, beside what the papers print and claim."""

from dialnb.report.site import build

__all__ = ["build"]
