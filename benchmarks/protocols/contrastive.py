"""TCC and its relatives on images: each trained for the same processor time, and the estimator as users call it."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final

import numpy as np
from sklearn.preprocessing import StandardScaler
from torch import Generator, Tensor

from benchmarks.baselines.cc import CcModel
from benchmarks.baselines.mice import MiceModel
from benchmarks.baselines.moco import MocoModel
from benchmarks.baselines.swav import SwavModel
from benchmarks.data.embedding_sets import sets_of_ten_classes
from benchmarks.data.image_sets import PixelImages, test_images
from benchmarks.lines import Floats, Labels, Line, stamp
from benchmarks.methods.classical import cluster_given_k
from benchmarks.suite import Job, Spec, Suite
from coterie import TCC
from coterie.config import from_dict
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.tcc.model import ContrastiveModel, TccModel
from coterie.tcc.schedule import Schedule, train_contrastive

N_CLASSES: Final = 10
TRIAL_STEPS: Final = 60  # steps that are timed; enough that most of them are not followed by a look at the clusters
MODELS: Final[dict[str, type[Any]]] = {
    "tcc": TccModel,
    "cc": CcModel,
    "mice": MiceModel,
    "swav": SwavModel,
    "moco": MocoModel,
}


def class_scores(truth: Labels, labels: Labels, suffix: str = "") -> dict[str, float]:
    """Compare clusters with classes."""
    scores = {
        "acc": matched_accuracy(truth, labels),
        "nmi": normalized_mutual_information(truth, labels),
        "ari": adjusted_rand_index(truth, labels),
    }
    return {f"{name}{suffix}": round(score, 5) for name, score in scores.items()}


def equal_time(suite: Suite) -> Iterator[Job]:
    """Derive one job per seed, collection and method."""
    for seed in suite["seeds"]:
        for data in suite["data"]:
            for name, spec in suite.methods.items():
                minutes = suite["minutes"] if "model" in spec else 0.0
                line = {"data": data, "method": name, "seed": seed, "settings": {}, "minutes": minutes}
                measure = _train_and_measure if "model" in spec else _measure_pixels
                yield Job([line], partial(measure, suite, spec))


def _measure_pixels(suite: Suite, _: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    (blank,) = pending
    images = test_images(blank["data"])
    began = time.process_time()
    labels = _kmeans(images.x.flatten(1), blank["seed"], suite["starts"])
    line = {"settings": {"starts": suite["starts"]}, "seconds": round(time.process_time() - began, 1)}
    yield {
        **blank,
        **line,
        "steps": 0,
        "epochs": 0.0,
        "metrics": class_scores(images.y, labels),
        "course": [],
        **stamp(),
    }


def _kmeans(x: Tensor, seed: int, starts: int) -> Labels:
    return cluster_given_k("kmeans", x.numpy(), N_CLASSES, seed, n_init=starts)


def _train(
    suite: Suite, spec: Spec, images: PixelImages, steps: int, seed: int, on_step: Callable[[int, Any], None]
) -> ContrastiveModel:
    _, channels, height, width = images.x.shape
    kind, epoch = MODELS[spec["model"]], len(images.x) // suite["batch_size"]
    settings = {**spec.get("config", {}), **dict.fromkeys(spec.get("by_epoch", []), epoch)}
    config = from_dict(
        kind.Config,
        {
            "n_features": channels * height * width,
            "n_clusters": N_CLASSES,
            "image": (channels, height, width),
            **settings,
        },
    )
    schedule = Schedule(
        batch_size=suite["batch_size"],
        epoch_steps=epoch,
        steps=steps,
        warm_up=spec.get("warm_up", 0.0),
        restarts=spec.get("restarts", 1),
        learning_rate=suite["learning_rate"],
        augmentations=None,
        folder=None,
    )
    generator = Generator().manual_seed(seed)
    model: ContrastiveModel
    model, _ = train_contrastive(kind, images.x.flatten(1), config, schedule, generator, on_step=on_step)
    return model


def _train_and_measure(suite: Suite, spec: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    (blank,) = pending
    images, seed, evaluations = test_images(blank["data"]), blank["seed"], suite["evaluations"]
    times = [time.process_time()]
    _train(suite, spec, images, TRIAL_STEPS, 0, lambda *_: times.append(time.process_time()))
    seconds_per_step = median(after - before for before, after in pairwise(times[1:]))
    steps = max(evaluations, int(60 * blank["minutes"] / seconds_per_step))
    epoch, every, x = len(images.x) / suite["batch_size"], steps // evaluations, images.x.flatten(1)
    course: list[tuple[float, float, float]] = []
    evaluating = 0.0

    def evaluate(step: int, model: ContrastiveModel) -> None:
        nonlocal evaluating
        if step % every or step > (evaluations - 1) * every:
            return
        began = time.process_time()
        own = matched_accuracy(images.y, model.memberships(x).argmax(dim=1).numpy())
        by_kmeans = matched_accuracy(images.y, _kmeans(model.embeddings(x), seed, 1))
        course.append((round(step / epoch, 2), round(own, 4), round(by_kmeans, 4)))
        evaluating += time.process_time() - began

    began = time.process_time()
    model = _train(suite, spec, images, steps, seed, evaluate)
    seconds = time.process_time() - began - evaluating
    own = class_scores(images.y, model.memberships(x).argmax(dim=1).numpy())
    by_kmeans = class_scores(images.y, _kmeans(model.embeddings(x), seed, suite["starts"]), "_places")
    course.append((round(steps / epoch, 2), round(own["acc"], 4), round(by_kmeans["acc_places"], 4)))
    settings = {key: str(value) for key, value in spec.get("config", {}).items()}
    settings |= {"warm_up": spec.get("warm_up", 0.0), "beginnings": spec.get("restarts", 1)}
    line = {"settings": settings, "seconds": round(seconds, 1), "steps": steps, "epochs": round(steps / epoch, 1)}
    yield {**blank, **line, "metrics": {**own, **by_kmeans}, "course": course, **stamp()}


def estimators(suite: Suite) -> Iterator[Job]:
    """Derive one job per row of data: TCC on images with each seed, and beside methods given k on sets of embeddings.

    For embeddings, the seed is the index of the set.
    """
    for data in suite["images"]:
        for name in suite["on_images"]:
            lines = [{"data": data, "method": name, "seed": seed} for seed in suite["seeds"]]
            yield Job(lines, partial(_measure_images, suite.methods[name]))
    for data in suite["embeddings"]:
        for name in suite["on_embeddings"]:
            lines = [{"data": data, "method": name, "seed": number} for number in range(suite["n_sets"])]
            yield Job(lines, partial(_measure_embeddings, suite, suite.methods[name]))


def _measure_images(spec: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    for blank in pending:
        images = test_images(blank["data"])
        yield _measure_estimator(blank, spec, images.bytes, images.y)


def _measure_embeddings(suite: Suite, spec: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    sets = sets_of_ten_classes(pending[0]["data"], suite["n_sets"], suite["sets_seed"])
    for blank in pending:
        one = sets[blank["seed"]]
        yield _measure_estimator(blank, spec, one.x.numpy(), one.labels.numpy())


def _measure_estimator(blank: Line, spec: Spec, x: Any, y: Labels) -> Line:
    began = time.perf_counter()
    labels, more = _fit(spec, x, blank["seed"])
    line = {"n": len(x), "d": int(x[0].size), "seconds": round(time.perf_counter() - began, 2)}
    return {**blank, **line, "metrics": {**class_scores(y, labels), **more}, **stamp()}


def _fit(spec: Spec, x: Any, seed: int) -> tuple[Labels, dict[str, float]]:
    if spec["cluster"] == "tcc":
        model = TCC(N_CLASSES, random_state=seed, **spec.get("options", {})).fit(x)
        epochs = float(len(model.history_["loss"]))
        return model.labels_, {"epochs": epochs, "n_clusters": float(model.n_clusters_)}
    scaled: Floats = StandardScaler().fit_transform(x)
    if spec["cluster"] == "gmm":
        scaled = scaled.astype(np.float64)
    return cluster_given_k(spec["cluster"], scaled, N_CLASSES, seed, **spec["options"]), {}
