"""``coterie cluster``: read, fit, write, and tell."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np

from coterie.amortized.abc.estimator import AttentionBasedClustering
from coterie.amortized.amcp.estimator import AMCP
from coterie.amortized.dac.estimator import DAC
from coterie.clam.estimator import ClAM
from coterie.cli.inputs import ClusterRequest, Loaded, height_and_width, load, result_table
from coterie.cli.outputs import Outputs, check_outputs
from coterie.cli.progress import Narrator
from coterie.cli.summary import Summary, Verdict, cluster_sizes, known_groups, present, scores_against
from coterie.errors import InputError
from coterie.files import write_atomically
from coterie.judged.candidates.registry import Effort
from coterie.judged.estimator import Coterie
from coterie.methods import METHODS
from coterie.metrics import silhouettes
from coterie.report.findings import gather, thinned
from coterie.report.page import render_report
from coterie.report.profile import describe_clusters, feature_statistics
from coterie.tables.readers.files import write_table
from coterie.tables.table import Array, Table
from coterie.tcc.estimator import TCC, tcc_from_recipe

_SILHOUETTE_ROWS = 2_000
_LARGEST_SEED = 2**32 - 1
_OF_COTERIE = {
    option: f"only for coterie; leave {option} out, or say --method coterie"
    for option in ("--effort", "--granularity", "--outliers", "--allow-single")
}
_OF_TCC = {"--recipe": "only for tcc; leave --recipe out, or say --method tcc"}
_NOT_TAKEN: dict[str, dict[str, str]] = {
    "coterie": {
        "--weights": "whose judge has weights of its own; leave --weights out, or add --method dac",
        "--scaling": "which tries several scalings by itself; leave --scaling out, or add --method clam",
        **_OF_TCC,
    },
    "clam": {
        "--weights": "which learns from the table itself; leave --weights out, or add --method dac",
        **_OF_COTERIE,
        **_OF_TCC,
    },
    "dac": {"-k": "which finds the number of clusters by itself; leave -k out", **_OF_COTERIE, **_OF_TCC},
    "attention-based": _OF_COTERIE | _OF_TCC,
    "amcp": {"-k": "which finds the number of clusters by itself; leave -k out", **_OF_COTERIE, **_OF_TCC},
    "tcc": {
        "--weights": "which learns from the rows themselves; leave --weights out, or add --method dac",
        **_OF_COTERIE,
    },
}
"""Options that a method does not take, and why, or what to do."""


def check_method(request: ClusterRequest) -> None:
    """Refuse a method that is not there, options that it does not take, and values that they do not take."""
    if request.method not in METHODS:
        raise InputError(f"there is no method {request.method!r}; there is {', '.join(METHODS)}")
    for option, value in _given(request).items():
        if option in _NOT_TAKEN[request.method]:
            why = _NOT_TAKEN[request.method][option]
            raise InputError(f"{f'{option} {value}'.strip()} is not for the method {request.method}, {why}")
    if request.recipe is not None:
        tcc_from_recipe(request.recipe)
    elif request.method == "tcc" and request.clusters == "auto":
        raise InputError("the method tcc does not find the number of clusters by itself; give it (-k 10, for ten)")
    if request.effort not in {None, *get_args(Effort)}:
        raise InputError(f"--effort takes {', '.join(get_args(Effort))}; got {request.effort!r}")
    if not math.isfinite(request.granularity or 0.0):
        raise InputError(f"--granularity takes a number, such as 1 or -0.5; got {request.granularity}")


def _given(request: ClusterRequest) -> dict[str, str]:
    """Options that not every method takes, with their values, as far as they were given."""
    values = {
        "-k": None if request.clusters == "auto" else request.clusters,
        "--weights": request.weights,
        "--scaling": request.scaling,
        "--recipe": request.recipe,
        "--effort": request.effort,
        "--granularity": None if request.granularity is None else f"{request.granularity:g}",
        "--outliers": "" if request.outliers else None,
        "--allow-single": "" if request.allow_single else None,
    }
    return {option: value for option, value in values.items() if value is not None}


def check_seed(seed: int | None) -> None:
    """Refuse what random generators do not take; none was given if it is None."""
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"--seed must be from 0 to {_LARGEST_SEED}; got {seed}")


@contextmanager
def estimator_at_work(
    request: ClusterRequest, n_clusters: int | Literal["auto"], narrator: Narrator
) -> Iterator[AMCP | AttentionBasedClustering | ClAM | Coterie | DAC | TCC]:
    """Lend the estimator, and show what it does meanwhile; what the user left open is left to the method."""
    chosen = {
        "effort": request.effort,
        "granularity": request.granularity,
        "scaling": request.scaling,
        "weights": request.weights,
        "random_state": 0 if request.seed is None and request.recipe is None else request.seed,
    }
    settings: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    asked = None if n_clusters == "auto" else n_clusters
    if request.method == "coterie":
        with narrator.steps("Clustering") as on_step:
            yield Coterie(
                asked,
                noise=request.outliers,
                allow_single=request.allow_single,
                on_progress=on_step,
                **settings,
            )
        return
    with narrator.training("Clustering") as on_progress:
        if request.method == "clam":
            yield ClAM(n_clusters, on_progress=on_progress, **settings)
        elif request.method == "attention-based":
            yield AttentionBasedClustering(asked, on_progress=on_progress, **settings)
        elif request.method == "amcp":
            yield AMCP(on_progress=on_progress, **settings)
        elif request.recipe is not None:
            given = settings if asked is None else {"n_clusters": asked, **settings}
            yield tcc_from_recipe(request.recipe, on_progress=on_progress, **given)
        elif request.method == "tcc" and asked is not None:
            yield TCC(asked, on_progress=on_progress, **settings)
        else:
            yield DAC(on_progress=on_progress, **settings)


def outliers_among(model: Any, labels: Array) -> int | None:
    """Count the rows that a model puts into no cluster; None if it was not told to look for such."""
    return int((labels < 0).sum()) if isinstance(model, Coterie) and model.noise else None


def verdict_of(model: Any) -> Verdict | None:
    """Return what is thought of the clusters by the judge that chose them, if there was something to choose."""
    if not isinstance(model, Coterie) or not model.proposals_:
        return None
    return Verdict(model.confidence_, model.runner_up_)


def silhouette_of(model: Any, features: Table) -> tuple[float, tuple[str, ...]]:
    """Silhouette of a fitted model without its outliers, NaN if it is not defined, and notes on how it was measured."""
    inside = np.flatnonzero(model.labels_ >= 0)
    # It needs two clusters, and one that has more than one row.
    if not 1 < model.n_clusters_ < len(inside):
        return math.nan, ()
    if isinstance(model, AttentionBasedClustering | TCC) and features.image is not None:
        return math.nan, ()  # what they see in images has little to do with distances between their pixels
    if isinstance(model, ClAM):
        return model.silhouette_, ()
    rows = inside[thinned(len(inside), _SILHOUETTE_ROWS)]
    labels = model.labels_[rows]
    if not 1 < len(np.unique(labels)) < len(rows):
        return math.nan, ()
    value = float(silhouettes(model.table_.transform(features)[rows], labels[None])[0])
    note = f"the silhouette is of {len(rows):,} of the {features.n_rows:,} rows, picked at random"
    return value, (note,) if len(rows) < len(inside) else ()


def run(request: ClusterRequest) -> None:
    """Do what was asked; whatever can be refused is refused before the fit."""
    writing = request.writing
    narrator = Narrator(quiet=writing.quiet)
    n_clusters = _number_of_clusters(request.clusters)
    image = _image_size(request)
    check_method(request)
    check_seed(request.seed)
    outputs = check_outputs(writing, [request.reading.file])
    with narrator.steps(f"Reading {request.reading.file}") as on_step:
        loaded = load(request.reading, on_step=on_step)
    features, truth = loaded.chosen.features, loaded.chosen.truth
    _check_pixels(image, features)
    if n_clusters != "auto" and n_clusters > features.n_rows:
        raise InputError(
            f"{n_clusters} clusters were asked for (-k), and {loaded.source.name} has {features.n_rows} rows; "
            "ask for fewer clusters"
        )
    known, groups, truth_notes = known_groups(truth, str(loaded.chosen.truth_name))
    with estimator_at_work(request, n_clusters, narrator) as model:
        began = time.perf_counter()
        model.fit(features)
        seconds = time.perf_counter() - began
    with narrator.phase("Writing"):
        silhouette, silhouette_notes = silhouette_of(model, features)
        traits = () if image or features.image or writing.quiet or writing.json else _traits(model, features)
        _write(loaded, model, outputs, append=writing.append, seconds=seconds, image=image)
    summary = Summary(
        source=loaded.source.name,
        n_rows=features.n_rows,
        sizes=cluster_sizes(model.labels_, model.n_clusters_),
        seconds=seconds,
        outliers=outliers_among(model, model.labels_),
        traits=traits,
        silhouette=silhouette,
        verdict=verdict_of(model),
        scores={} if truth is None else scores_against(groups, model.labels_[known]),
        notes=(*features.notes, *model.table_.notes, *model.notes_, *silhouette_notes, *truth_notes),
        files=outputs.files,
        noun="row" if features.image is None else "image",
    )
    present(summary, writing, narrator)


def _number_of_clusters(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"-k takes a whole number from 1, or auto; got {text!r}")
    return int(text)


def _image_size(request: ClusterRequest) -> tuple[int, int] | None:
    if request.image is None:
        return None
    if request.writing.report is None:
        raise InputError("--image is about the page; say where to write it (--report PAGE.html)")
    return height_and_width("--image", request.image)


def _traits(model: Any, features: Table) -> tuple[str, ...]:
    """Say in a few words what sets each cluster apart."""
    found = gather(model, features, None)
    return tuple(profile.name for profile in describe_clusters(found, feature_statistics(found)))


def _check_pixels(image: tuple[int, int] | None, features: Table) -> None:
    if image is not None and features.image is not None:
        raise InputError(
            f"--image is for tables whose columns are pixels, and {features.source} has images already; leave it out"
        )
    if image is not None and image[0] * image[1] != features.n_columns:
        raise InputError(
            f"images of {image[0]}x{image[1]} have {image[0] * image[1]} pixels, and {features.n_columns} columns are "
            "clustered; choose the pixels (--columns, --drop, --id, --truth), or another size"
        )


def _write(
    loaded: Loaded, model: Any, outputs: Outputs, *, append: bool, seconds: float, image: tuple[int, int] | None
) -> None:
    """Write all files, or none; what goes to the standard output comes last, since it cannot be taken back."""
    rows = None
    if outputs.wants_rows:
        rows = result_table(loaded, model.labels_, model.probabilities_, append=append, typed=outputs.typed)
    with outputs.staged() as staged:
        if staged.model is not None:
            model.save(staged.model)
        if staged.report is not None:
            page = render_report(
                model,
                loaded.chosen.features,
                title=f"Clusters of {loaded.source.name}",
                source=loaded.source.name,
                ids=loaded.chosen.ids,
                truth=loaded.chosen.truth,
                seconds=seconds,
                images=image,
            )
            write_atomically(staged.report, page, force=False)
        if staged.rows is not None and rows is not None:
            write_table(staged.rows, *rows, force=False)
    if outputs.to_stdout and rows is not None:
        write_table("-", *rows, force=False)
