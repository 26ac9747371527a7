"""Findings -> the report that a result makes of them."""

from recoslip.inference.analysis import Findings
from recoslip.pipeline.report.html import Report
from recoslip.pipeline.result import Result


def report(findings: Findings, **options) -> Report:
    return Result.of(findings).report(**options)
