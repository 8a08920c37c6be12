"""Reports: a run, or several of one task, on one page that needs no network."""

from quartet.report.page import render, write_report

__all__ = ["render", "write_report"]
