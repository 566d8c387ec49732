"""Which numbers of clusters are tried."""

from dataclasses import dataclass
from typing import Self, final

_STEPS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
_WIDE_STEPS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 26, 35, 50)
_GROWTH = 1.15


def ladder(n: int, n_distinct: int, max_clusters: int, *, wide: bool = False) -> tuple[int, ...]:
    """Numbers of clusters from 2 up, each one at first, then thinning out.

    Parameters
    ----------
    n : int
        Number of rows; clusters of two rows on average are the smallest worth proposing.
    n_distinct : int
        Number of rows that differ.
    max_clusters : int
        Largest number wanted.
    wide : bool
        Take wider steps.
    """
    highest = min(max_clusters, max(2, n // 2), n_distinct)
    steps = list(_WIDE_STEPS if wide else _STEPS)
    growth = _GROWTH**2 if wide else _GROWTH
    while steps[-1] < highest:
        steps.append(round(steps[-1] * growth))
    return tuple(k for k in steps if k <= highest)


@final
@dataclass(frozen=True, slots=True)
class Ladders:
    """Numbers of clusters in fine and in wide steps."""

    fine: tuple[int, ...]
    wide: tuple[int, ...]

    @classmethod
    def of(cls, n: int, n_distinct: int, max_clusters: int, n_clusters: int | None) -> Self:
        """Both ladders; `n_clusters` alone, if it is given."""
        if n_clusters is not None:
            return cls((n_clusters,), (n_clusters,))
        return cls(*(ladder(n, n_distinct, max_clusters, wide=wide) for wide in (False, True)))
