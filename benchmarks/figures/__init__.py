"""Figures of the documentation, by suite: ``draw`` writes them, `FIGURES` lists them."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import matplotlib as mpl

from benchmarks.figures.layout import STYLE
from benchmarks.suite import Suite, load_suite
from coterie.base import one_thread
from coterie.errors import InputError

FIGURES: dict[str, dict[str, str]] = {
    "abc_circles": {"kernels": "abc", "ari": "abc"},
    "amcp_images": {"digits": "amcp", "cifar10": "amcp"},
    "amcp_networks": {"steps": "amcp", "course": "amcp"},
    "clam": {
        **dict.fromkeys(("idea", "basins", "toys", "outliers"), "clam_toys"),
        **dict.fromkeys(("prototypes", "sensitivity", "entropy"), "clam"),
    },
    "dac": {"filtering": "dac", "mixtures": "dac", "warped": "dac"},
    "embeddings_unknown": dict.fromkeys(("agreement", "confidence"), "embeddings"),
    "emnist": {"emnist_filtering": "dac", "emnist_clusters": "dac"},
    "first_files": dict.fromkeys(("reliability", "null", "noise"), "first_files"),
    "judge_calibration": {"calibration": "judge", "gallery": "judge"},
    "omniglot": {"omniglot_kernel": "abc", "omniglot_training": "abc"},
    "tcc": {"tcc_course": "tcc", "tcc_clusters": "tcc"},
}
"""Module of each figure; the function that draws it is ``draw_`` and its name."""


@dataclass(frozen=True)
class Context:
    """What functions that draw get."""

    suite: Suite
    folder: Path  # where figures go


def draw(
    suite: str, only: Sequence[str], folder: Path, run_folder: Path | None = None, results: Path | None = None
) -> None:
    """Draw the figures of a suite, all or those named; networks come from the run folder or are trained."""
    known = FIGURES.get(suite, {})
    if not known or set(only) - set(known):
        everything = "; ".join(f"{name}: {', '.join(parts)}" for name, parts in FIGURES.items())
        raise InputError(f"{suite!r} has no figures {', '.join(only) or 'at all'}. There are {everything}.")
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    context = Context(load_suite(suite, results=results, run_folder=run_folder), folder)
    for name in only or known:
        with one_thread(), mpl.rc_context(STYLE):
            getattr(import_module(f"benchmarks.figures.{known[name]}"), f"draw_{name}")(context)
