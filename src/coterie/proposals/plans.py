"""Which algorithms run on which form of the columns, for each degree of effort."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from coterie.proposals.ladder import Ladders
from coterie.proposals.mixtures import Covariance
from coterie.proposals.partitions import Algorithm

Effort = Literal["fast", "balanced", "thorough"]

# Beyond, single linkage does little but set rows apart, eigenvectors are many, and so are parameters of mixtures;
# that all clusters have the same shape is most often so of the few classes of a table.
_MOST_CLUSTERS: dict[Algorithm, int] = {
    "single linkage": 12,
    "spectral": 30,
    "Gaussian mixture": 30,
    "Gaussian mixture, shared shape": 12,
}


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What is run on one view. Numbers of clusters are taken in wide steps, but for what is named in `fine`."""

    fine: frozenset[Algorithm] = frozenset()
    ward: bool = True
    restarts: int = 0  # of k-means, besides the start from Ward's clusters
    mixtures: tuple[Covariance, ...] = ()
    em_steps: int = 12
    linkages: tuple[Literal["average", "complete"], ...] = ()
    single: bool = False
    ginis: tuple[float, ...] = (0.3,)
    leafless_ginis: tuple[float, ...] = ()
    hdbscan_sizes: tuple[int, ...] = ()
    selections: tuple[Literal["eom", "leaf"], ...] = ("eom",)
    spectral_neighbours: tuple[int, ...] = ()
    peaks: bool = False
    modes: bool = False

    def ks(self, algorithm: Algorithm, ladders: Ladders) -> Sequence[int]:
        """Numbers of clusters that an algorithm is asked for."""
        rungs = ladders.fine if algorithm in self.fine else ladders.wide
        most = _MOST_CLUSTERS.get(algorithm, rungs[-1])
        return [k for k in rungs if k <= most or len(rungs) == 1]  # a number that was asked for is always tried


_THOROUGH = Plan(
    fine=frozenset({"k-means", "Ward linkage", "Genie linkage", "Gaussian mixture", "average linkage", "spectral"}),
    restarts=1,
    mixtures=("full", "diagonal", "shared"),
    em_steps=40,
    linkages=("average", "complete"),
    single=True,
    ginis=(0.3, 0.5),
    leafless_ginis=(0.3, 0.5),
    hdbscan_sizes=(5, 10, 20, 40),
    selections=("eom", "leaf"),
    spectral_neighbours=(7, 15, 30),
    peaks=True,
    modes=True,
)
PLANS: dict[Effort, tuple[Plan, Plan]] = {
    "fast": (
        Plan(mixtures=("full", "shared"), em_steps=8, single=True, spectral_neighbours=(10,), modes=True),
        Plan(ward=False),
    ),
    "balanced": (
        Plan(
            fine=frozenset({"k-means", "Ward linkage"}),
            mixtures=("full", "diagonal", "shared"),
            em_steps=25,
            linkages=("average",),
            single=True,
            ginis=(0.3, 0.5),
            leafless_ginis=(0.3,),
            hdbscan_sizes=(5, 12, 30),
            selections=("eom", "leaf"),
            spectral_neighbours=(8, 20),
            peaks=True,
            modes=True,
        ),
        Plan(ward=False, mixtures=("full", "diagonal"), hdbscan_sizes=(10,), spectral_neighbours=(10,), modes=True),
    ),
    "thorough": (_THOROUGH, _THOROUGH),
}
"""By effort: what is run on the standardised columns, and on each other form of them."""
MOST_VIEWS: dict[Effort, int] = {"fast": 2, "balanced": 4, "thorough": 4}
"""How many forms of the columns are looked at."""
