"""Train a network on folders of labelled images, and cluster images of new classes.

`python examples/learn_images.py` trains on hand-written digits from 0 to 6 and clusters those from 7 to 9. For your
own images: `python examples/learn_images.py LABELLED NEW`, where LABELLED has one sub-folder per class.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from coterie import AttentionBasedClustering
from coterie.progress import Progress
from coterie.tables.readers.images import read_images


def write_digits(folder: Path) -> tuple[Path, Path]:
    """Write two folders: digits from 0 to 6 by class, and the others without classes."""
    digits = load_digits()
    for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        parts = ("labelled", str(digit)) if digit < 7 else ("new",)
        folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        name = f"{number}-is-{digit}.png"
        Image.fromarray((image * 15.9).astype(np.uint8)).save(folder.joinpath(*parts, name))
    return folder / "labelled", folder / "new"


def show(progress: Progress) -> None:
    if progress.evaluation:
        print(f"{progress}: {dict(progress.evaluation)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        labelled, new = given.folders or write_digits(Path(temporary))
        model = AttentionBasedClustering(random_state=0, callback=show)
        model.learn(labelled, steps=given.steps, batch_size=4, max_points=100)
        images = read_images(new)
        labels = model.fit_predict(images)
    files = images.extra_columns["file"]
    print(f"{len(files)} new images in {model.n_clusters_} clusters")
    for cluster in range(min(model.n_clusters_, 10)):
        members = files[labels == cluster]
        classes = Counter(Path(name).stem.rpartition("-")[2] for name in members)
        print(f"cluster {cluster}: {len(members)} images, such as {', '.join(members[:3])} {dict(classes)}")


if __name__ == "__main__":
    main()
