"""Teach DAC what a cluster is with thirty sets that are sorted already, and let it sort sets with other clusters.

The clusters are angles: two arms each, of any size, opening and direction. No weights that ship know them; learning
begins from those for arcs. Run it with `python examples/learn_shapes.py`; it takes a few minutes.
"""

import argparse

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from coterie import DAC
from coterie.progress import Progress

Set = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def angles(n_clusters: int, rng: np.random.Generator, points: int = 60) -> Set:
    """A set of angles, and which one each point is part of."""
    parts = []
    for _ in range(n_clusters):
        along = rng.uniform(-1, 1, size=points)
        size, half = rng.uniform(1.2, 2.5), rng.uniform(np.pi / 6, np.pi / 3)
        arms = size * np.c_[np.abs(along) * np.cos(half), along * np.sin(half)]
        arms += rng.normal(scale=0.08, size=(points, 2))
        turn = rng.uniform(0, 2 * np.pi)
        turned = arms @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        parts.append(turned + rng.normal(scale=3.0, size=2))
    return np.concatenate(parts), np.repeat(np.arange(n_clusters), points)


def show(progress: Progress) -> None:
    if progress.evaluation:
        print(f"step {progress.step}: {progress.evaluation}, {progress.seconds_left:.0f} s left")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    rng = np.random.default_rng(0)
    sorted_sets = [angles(int(rng.integers(2, 7)), rng) for _ in range(30)]
    clusterer = DAC("dac-warped2d-v2", scaling="none", random_state=0, on_progress=show)
    clusterer.learn(sorted_sets, steps=parser.parse_args().steps, max_points=200, learning_rate=1e-4)
    print(f"agreement on sets that were held out: {clusterer.evaluation_['adjusted_rand_index']:.3f}")
    for n_clusters in (2, 4, 6):
        scores = []
        for X, truth in [angles(n_clusters, rng) for _ in range(5)]:
            k_means = KMeans(n_clusters, n_init=10, random_state=0).fit_predict(X)
            scores.append([adjusted_rand_score(truth, found) for found in (clusterer.fit_predict(X), k_means)])
        ours, theirs = np.mean(scores, axis=0)
        print(f"{n_clusters} angles, mean ARI of five sets: DAC {ours:.2f}; k-means, told how many, {theirs:.2f}")


if __name__ == "__main__":
    main()
