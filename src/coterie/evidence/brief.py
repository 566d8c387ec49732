"""All that is laid before the judge: what each proposal looks like, how it stands among the others, whose it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, final, get_args

import numpy as np
from jaxtyping import Float

from coterie.evidence.context import CONTEXT, context_of
from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Integers, Labels, Singles
from coterie.evidence.steps import STEPS, steps_of
from coterie.evidence.table import FEATURES, evidence_of, ranks_of
from coterie.proposals import Algorithm, Proposal, fit_views
from coterie.proposals.partitions import Floats

ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
VIEWS = ("standardised", "raw", "whitened", "ranks")

BRIEF: tuple[str, ...] = (
    *FEATURES,
    *(f"rank of {name}" for name in FEATURES),
    *CONTEXT,
    *STEPS,
    *(f"by {name}" for name in ALGORITHMS),
    *(f"on {name}" for name in VIEWS),
)
"""Names of the columns of a brief, in their order."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What is known about proposals for the same rows; more of them can join."""

    geometry: Geometry
    """Of the standardised rows: evidence is taken from these for all proposals, whatever form of the columns they saw,
    so that they can be compared."""
    proposals: tuple[Proposal, ...]
    """At least one."""
    evidence: Float[Singles, "R F"]
    """About each proposal alone."""

    @classmethod
    def of(cls, x: Floats, proposals: Sequence[Proposal]) -> Self:
        """Take the evidence.

        Parameters
        ----------
        x : float64 array (N, D)
            The rows in their original units.
        proposals : sequence of Proposal
            Partitions of these rows; at least one.
        """
        geometry = Geometry.of(fit_views(x)[0].transform(x))
        return cls(geometry, tuple(proposals), evidence_of(geometry, _labels(proposals)))

    def joined_by(self, others: Sequence[Proposal]) -> Self:
        """The case with further proposals, at least one, at the end."""
        evidence = np.concatenate((self.evidence, evidence_of(self.geometry, _labels(others))))
        return replace(self, proposals=(*self.proposals, *others), evidence=evidence)

    def brief(self) -> Float[Singles, "R C"]:
        """Lay out the proposals, one line each, columns as in `BRIEF`."""
        n_clusters = np.array([each.n_clusters for each in self.proposals])
        algorithm = np.array([ALGORITHMS.index(each.algorithm) for each in self.proposals])
        view = np.array([VIEWS.index(each.view) for each in self.proposals])
        brief: Singles = np.concatenate(
            (
                self.evidence,
                ranks_of(self.evidence),
                context_of(_labels(self.proposals), n_clusters),
                steps_of(self.evidence, n_clusters, algorithm * len(VIEWS) + view),
                _one_hot(algorithm, len(ALGORITHMS)),
                _one_hot(view, len(VIEWS)),
            ),
            axis=1,
        )
        return brief


def _labels(proposals: Sequence[Proposal]) -> Labels:
    return np.stack([each.labels for each in proposals])


def _one_hot(positions: Integers, width: int) -> Singles:
    rows: Singles = np.eye(width, dtype=np.float32)[positions]
    return rows
