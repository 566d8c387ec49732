"""Evidence from the number of clusters and their sizes alone."""

import numpy as np

from coterie.evidence.partitions import Partitions, Reals


def size_evidence(parts: Partitions) -> dict[str, Reals]:
    """How many clusters there are, and how unequal."""
    count, rows = parts.n_clusters, parts.n_rows
    share = parts.sizes / rows
    entropy = -parts.total(share * np.log(share))
    return {
        "log_clusters": np.log(count),
        "log_rows_per_cluster": np.log(rows / count),
        "size_evenness": np.where(count > 1, entropy / np.log(np.maximum(count, 2)), 1.0),
        "log_effective_clusters": entropy,
        "smallest_share": parts.least(share),
        "largest_share": parts.most(share),
        "log_smallest_to_fair": np.log(parts.least(share) * count),
        "tiny_clusters": parts.mean(parts.sizes < 5),
        "small_clusters": parts.mean(share < 0.2 / count[parts.owner]),
    }
