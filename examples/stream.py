"""Cluster a stream of data in parts, without keeping them: `python examples/stream.py`."""

import numpy as np
import numpy.typing as npt

from coterie import ClAM

CENTRES = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])


def read_part(rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Sample rows of three classes, and their classes."""
    classes = rng.integers(len(CENTRES), size=400)
    return CENTRES[classes] + rng.normal(size=(len(classes), 2)), classes


def main() -> None:
    rng = np.random.default_rng(0)
    model = ClAM(n_clusters=3, random_state=0)
    for number in range(1, 6):
        rows, classes = read_part(rng)
        # The first part also fixes the columns and their scale, so it should resemble the others.
        model.partial_fit(rows)
        # labels_ belong to the latest part. Clusters keep their numbers.
        counts = [np.bincount(classes[model.labels_ == cluster], minlength=3) for cluster in range(3)]
        majority = [int(count.argmax()) for count in counts]
        purity = sum(count.max() for count in counts) / len(classes)
        print(f"part {number}: clusters 0, 1, 2 are classes {majority}, purity {purity:.3f}")


if __name__ == "__main__":
    main()
