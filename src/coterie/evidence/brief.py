"""All that is laid before the judge: what each proposal looks like, how it stands among the others, whose it is."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from jaxtyping import Float

from coterie.evidence.context import CONTEXT, context_of
from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Singles
from coterie.evidence.table import FEATURES, evidence_of, ranks_of
from coterie.proposals import Algorithm, Proposal, fit_views
from coterie.proposals.partitions import Floats

ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
VIEWS = ("standardised", "raw", "whitened", "ranks")

BRIEF: tuple[str, ...] = (
    *FEATURES,
    *(f"rank of {name}" for name in FEATURES),
    *CONTEXT,
    *(f"by {name}" for name in ALGORITHMS),
    *(f"on {name}" for name in VIEWS),
)
"""Names of the columns of a brief, in their order."""


def brief_of(x: Floats, proposals: Sequence[Proposal]) -> Float[Singles, "R C"]:
    """Lay out the proposals for the same rows, one line each, columns as in `BRIEF`.

    Parameters
    ----------
    x : float64 array (N, D)
        The rows in their original units. Evidence is taken from their standardised form for all proposals, whatever
        form these saw, so that they can be compared.
    proposals : sequence of Proposal
        Partitions of these rows; at least one.
    """
    standardised = fit_views(x)[0].transform(x)
    labels = np.stack([each.labels for each in proposals])
    evidence = evidence_of(Geometry.of(standardised), labels)
    brief: Singles = np.concatenate(
        (
            evidence,
            ranks_of(evidence),
            context_of(labels, np.array([each.n_clusters for each in proposals])),
            _one_hot([ALGORITHMS.index(each.algorithm) for each in proposals], len(ALGORITHMS)),
            _one_hot([VIEWS.index(each.view) for each in proposals], len(VIEWS)),
        ),
        axis=1,
    )
    return brief


def _one_hot(positions: Sequence[int], width: int) -> Singles:
    rows: Singles = np.eye(width, dtype=np.float32)[np.array(positions)]
    return rows
