"""Render docs/results from the results files: ``python -m benchmarks render [--check]``.

A page is specified in ``benchmarks/pages/NAME.toml``: a title, and sections of prose and blocks. A block is a table, a
list of claims or another of the kinds in `blocks.KINDS`. Its cells are templates such as ``{ari:se3}``: a measure, a
statistic and digits (`cells`). ``pages/common.toml`` holds what pages share: how each results file is read, names as
shown, and usual columns. Numbers printed in papers are in ``benchmarks/published``.
"""

from benchmarks.render.pages import main

__all__ = ["main"]
