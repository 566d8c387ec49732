"""Teach DAC what a cluster is with thirty sets that are sorted already, and let it sort sets with other clusters.

The clusters are crosses: two bars each, of any size and direction. No weights that ship know them; learning begins from
those for arcs. Run it with `python examples/learn_shapes.py`; it takes a few minutes.
"""

import argparse

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from coterie import DAC
from coterie.training import Progress

Set = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def crosses(n_clusters: int, rng: np.random.Generator, points: int = 60) -> Set:
    """A set of crosses, and which cross each point is part of."""
    parts = []
    for _ in range(n_clusters):
        along = rng.uniform(-1, 1, size=points) * rng.uniform(0.5, 2.0)
        bar = np.where(rng.random(points) < 0.5, 0, 1)
        across = rng.normal(scale=0.05, size=points)
        cross = np.where(bar[:, None] == 0, np.c_[along, across], np.c_[across, along])
        angle = rng.uniform(0, np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        parts.append(cross @ turn.T + rng.normal(scale=3.0, size=2))
    return np.concatenate(parts), np.repeat(np.arange(n_clusters), points)


def show(progress: Progress) -> None:
    if progress.evaluation:
        print(f"step {progress.step}: {progress.evaluation}, {progress.seconds_left:.0f} s left")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    rng = np.random.default_rng(0)
    sorted_sets = [crosses(int(rng.integers(2, 7)), rng) for _ in range(30)]
    clusterer = DAC("dac-warped2d-v1", random_state=0, on_progress=show)
    clusterer.learn(sorted_sets, steps=parser.parse_args().steps, max_points=200)
    print(f"agreement on sets that were held out: {clusterer.evaluation_['adjusted_rand_index']:.3f}")
    for n_clusters in (2, 4, 6):
        X, truth = crosses(n_clusters, rng)
        found = clusterer.fit_predict(X)
        k_means = KMeans(n_clusters, n_init=10, random_state=0).fit_predict(X)
        print(
            f"{n_clusters} crosses: DAC finds {found.max() + 1}, ARI {adjusted_rand_score(truth, found):.2f}", end="; "
        )
        print(f"k-means, told how many, ARI {adjusted_rand_score(truth, k_means):.2f}")


if __name__ == "__main__":
    main()
