"""Evidence from what the same algorithm proposes with fewer and with more clusters: the elbow in a curve."""

import numpy as np
from jaxtyping import Float, Int

from coterie.evidence.partitions import Integers, Singles
from coterie.evidence.table import FEATURES

STEPPED: tuple[str, ...] = (
    "silhouette",
    "modularity",
    "normal_bic",
    "variance_left",
    "density_validity",
    "own_mode",
    "separation_rows",
    "normal_gain",
    "same_12",
    "conductance_rows",
    "merging_cost_rows",
    "valley_rows",
    "log_clusters",
    "basins_agree",
    "normal_certainty",
    "column_top_3",
)
STEPS: tuple[str, ...] = (
    *(f"{name} against fewer clusters" for name in STEPPED),
    *(f"{name} with more clusters" for name in STEPPED),
)
"""Names of the columns of steps, in their order."""
_PLACES = np.array([FEATURES.index(name) for name in STEPPED])


def steps_of(
    evidence: Float[Singles, "R F"], n_clusters: Int[Integers, " R"], series: Int[Integers, " R"]
) -> Float[Singles, "R S"]:
    """How evidence changes from the next smaller number of clusters of a series, and to the next larger one.

    Parameters
    ----------
    evidence : array (R, F)
        Columns as in `FEATURES`.
    n_clusters : integer array (R,)
        Number of clusters of each partition.
    series : integer array (R,)
        Partitions with the same number here are compared: those of one algorithm on one form of the columns.

    Returns
    -------
    array (R, S)
        Columns as in `STEPS`; zero at the ends of a series.

    Examples
    --------
    >>> import numpy as np
    >>> evidence = np.zeros((3, len(FEATURES)), dtype=np.float32)
    >>> evidence[:, FEATURES.index("silhouette")] = [0.5, 0.75, 0.25]
    >>> steps_of(evidence, np.array([2, 4, 3]), np.array([0, 0, 1]))[:, 0].tolist()
    [0.0, 0.25, 0.0]
    """
    order = np.lexsort((n_clusters, series))
    values, counts, group = evidence[order][:, _PLACES], n_clusters[order], series[order]
    rung = group * (counts.max() + 1) + counts  # rises along the order; equal for partitions of one number
    before = np.searchsorted(rung, rung, side="left") - 1
    after = np.searchsorted(rung, rung, side="right")
    has_before = (before >= 0) & (group[before] == group)
    after = np.minimum(after, len(rung) - 1)
    has_after = (group[after] == group) & (counts[after] > counts)
    steps = np.empty((len(evidence), len(STEPS)), dtype=np.float32)
    steps[order] = np.hstack(
        [
            np.where(has_before[:, None], values - values[before], 0.0),
            np.where(has_after[:, None], values[after] - values, 0.0),
        ]
    )
    return steps
