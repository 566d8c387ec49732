"""One self-contained HTML page that shows and explains a clustering."""

from coterie.report.findings import FittedClusterer
from coterie.report.page import render_report

__all__ = ["FittedClusterer", "render_report"]
