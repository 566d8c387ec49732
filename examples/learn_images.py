"""Teach a network what a class of images is with folders that are sorted already, and let it sort a folder of others.

Without arguments it writes folders of hand-written digits: it learns from those of 0 to 6, and sorts the others. With
your own: `python examples/learn_images.py SORTED_FOLDER NEW_FOLDER`; the first has a sub-folder for each class.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from coterie import AttentionBasedClustering
from coterie.tables.readers.images import read_images
from coterie.progress import Progress


def write_digits(folder: Path) -> tuple[Path, Path]:
    """Two folders: one of digits by their names, and one of digits that the first does not have."""
    digits = load_digits()
    for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        parts = ("sorted", str(digit)) if digit < 7 else ("new",)
        folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        name = f"{number}-is-{digit}.png"
        Image.fromarray((image * 15.9).astype(np.uint8)).save(folder.joinpath(*parts, name))
    return folder / "sorted", folder / "new"


def show(progress: Progress) -> None:
    if progress.evaluation:
        print(f"step {progress.step}: {progress.evaluation}, {progress.seconds_left:.0f} s left")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        known, new = given.folders or write_digits(Path(temporary))
        clusterer = AttentionBasedClustering(random_state=0, on_progress=show)
        clusterer.learn(known, steps=given.steps, batch_size=4, max_points=100)
        images = read_images(new)
        labels = clusterer.fit_predict(images)
    files = images.extra_columns["file"]
    print(f"{len(files)} new images in {clusterer.n_clusters_} clusters")
    for cluster in range(min(clusterer.n_clusters_, 10)):
        members = files[labels == cluster]
        endings = Counter(Path(name).stem.rpartition("-")[2] for name in members)
        print(f"cluster {cluster}: {len(members)} images, such as {', '.join(members[:3])} {dict(endings)}")


if __name__ == "__main__":
    main()
