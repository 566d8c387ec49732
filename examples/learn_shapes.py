"""Train DAC on thirty labelled sets to find clusters of a new shape: `python examples/learn_shapes.py`.

The clusters are V shapes of any size, angle and rotation. No shipped weights know them; training starts from those for
arcs and takes a few minutes.
"""

import argparse

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from coterie import DAC
from coterie.progress import Progress

Task = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def sample_task(n_clusters: int, rng: np.random.Generator, points: int = 60) -> Task:
    """Sample V shapes, and the label of each point."""
    shapes = []
    for _ in range(n_clusters):
        along = rng.uniform(-1, 1, size=points)
        size, half = rng.uniform(1.2, 2.5), rng.uniform(np.pi / 6, np.pi / 3)
        shape = size * np.c_[np.abs(along) * np.cos(half), along * np.sin(half)]
        shape += rng.normal(scale=0.08, size=(points, 2))
        angle = rng.uniform(0, 2 * np.pi)
        rotation = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        shapes.append(shape @ rotation + rng.normal(scale=3.0, size=2))
    return np.concatenate(shapes), np.repeat(np.arange(n_clusters), points)


def show(progress: Progress) -> None:
    if progress.evaluation:
        print(f"{progress}: {dict(progress.evaluation)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    rng = np.random.default_rng(0)
    tasks = [sample_task(int(rng.integers(2, 7)), rng) for _ in range(30)]
    model = DAC(weights="dac-warped2d-v2", scaling="none", random_state=0, callback=show)
    model.learn(tasks, steps=parser.parse_args().steps, max_points=200, learning_rate=1e-4)
    print(f"agreement on held-out tasks: {model.evaluation_['adjusted_rand_index']:.3f}")
    for k in (2, 4, 6):
        scores = []
        for X, truth in [sample_task(k, rng) for _ in range(5)]:
            k_means = KMeans(k, n_init=10, random_state=0).fit_predict(X)
            scores.append([adjusted_rand_score(truth, labels) for labels in (model.fit_predict(X), k_means)])
        dac, k_means_score = np.mean(scores, axis=0)
        print(f"{k} clusters, mean ARI of five sets: DAC {dac:.2f}; k-means, given k, {k_means_score:.2f}")


if __name__ == "__main__":
    main()
