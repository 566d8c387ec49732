"""How well the truth of a set is to be seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

from coterie.tasks.universal.dice import Dice

CLEAR: Final = 0.97
TOLERANCE: Final = 0.03
DEGREES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"touching": (0.86, CLEAR), "overlapping": (0.7, 0.86), "hazy": (0.58, 0.7), "faint": (0.35, 0.58)}
)
"""Agreement at the two ends of each degree below clear."""


@final
@dataclass(frozen=True, slots=True)
class Clarity:
    """How clear sets of some family are."""

    degrees: Mapping[str, float]
    """Degrees, by how often."""
    tightest: float
    """Looseness at which the tightest of the clear sets start."""


SOFT: Final = Clarity(MappingProxyType({"clear": 0.45, "touching": 0.3, "overlapping": 0.25}), 0.6)
"""Clusters with a dense middle, which can be told apart even where they overlap."""
HARD: Final = Clarity(MappingProxyType({"clear": 0.75, "touching": 0.25}), 0.6)
"""Clusters of even density and curves, which are nothing but a patch of points once they overlap."""
JOINT: Final = Clarity(MappingProxyType({"clear": 0.8, "touching": 0.2}), 0.3)
"""Nested and interleaved clusters: the same, and the gap between them may be wide."""
CROSSING: Final = Clarity(MappingProxyType({"touching": 1.0}), 1.0)
"""Clusters that have some places in common."""
TABLE: Final = Clarity(
    MappingProxyType({"clear": 0.24, "touching": 0.22, "overlapping": 0.22, "hazy": 0.16, "faint": 0.16}), 0.3
)
"""Classes of tables, of all degrees."""


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """How well the truth of one set is to be seen."""

    low: float
    """Least agreement."""
    high: float
    """Most agreement."""
    start: float = 1.0
    """Looseness that is tried first."""


def draw_wanted(clarity: Clarity, dice: Dice) -> Wanted:
    """Bounds of the agreement that a set is to have, and how loose it is at first."""
    degree = dice.pick(clarity.degrees)
    if degree == "clear":
        # Agreement says little of how wide a gap is, so that sets which are clear start with gaps of all widths.
        return Wanted(CLEAR, 1.0, dice.log_number(clarity.tightest, 1.1))
    middle = dice.number(*DEGREES[degree])
    return Wanted(middle - TOLERANCE, middle + TOLERANCE)
