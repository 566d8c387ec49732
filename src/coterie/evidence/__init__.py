"""Numbers that describe a proposed partition of rows: what a judge of partitions looks at."""

from coterie.evidence.brief import BRIEF, Case
from coterie.evidence.context import CONTEXT, context_of, rand_indices
from coterie.evidence.geometry import Geometry
from coterie.evidence.table import FEATURES, evidence_of, ranks_of

__all__ = [
    "BRIEF",
    "CONTEXT",
    "FEATURES",
    "Case",
    "Geometry",
    "context_of",
    "evidence_of",
    "rand_indices",
    "ranks_of",
]
