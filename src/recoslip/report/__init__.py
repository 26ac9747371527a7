"""Findings -> the page a person looks at."""

from recoslip.report.page import Report, report

__all__ = ["Report", "report"]
