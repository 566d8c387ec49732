"""One self-contained HTML page that shows and explains a clustering. Start at page.py."""

from coterie.report.page import render_report

__all__ = ["render_report"]
