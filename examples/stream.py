"""Cluster a stream: learn from parts as they arrive, without keeping them."""

import numpy as np
import numpy.typing as npt

from coterie import ClAM

CENTRES = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])


def part(rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Rows of three groups, and which group each is of."""
    groups = rng.integers(len(CENTRES), size=400)
    return CENTRES[groups] + rng.normal(size=(len(groups), 2)), groups


def main() -> None:
    rng = np.random.default_rng(0)
    model = ClAM(n_clusters=3, random_state=0)
    for number in range(1, 6):
        rows, groups = part(rng)
        # The first part is a fit, which also fixes the columns and their scale; so it should be like the others.
        model.partial_fit(rows)
        # labels_ are those of the latest part. Clusters keep their numbers from part to part.
        counts = [np.bincount(groups[model.labels_ == cluster], minlength=3) for cluster in range(3)]
        most = [int(count.argmax()) for count in counts]
        purity = sum(count.max() for count in counts) / len(groups)
        print(f"part {number}: clusters 0, 1, 2 are groups {most}, purity {purity:.3f}")


if __name__ == "__main__":
    main()
