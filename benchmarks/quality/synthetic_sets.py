"""What benchmarks on sets of the universal prior share: seeds, options, and a results file that is gone on with."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from torch import Generator

from benchmarks.quality.records import Record, Settings, current_commit, library_versions, read_records
from coterie.judged.assign import Floats, Partitioner
from coterie.judged.candidates.candidate import Proposal
from coterie.judged.prior.universal import DrawnSet
from coterie.metrics import adjusted_rand_index

STRIDE: Final = 1_000_003
"""Between the seeds of sets of different suites, which are never so many."""


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    sets: int
    quick: bool
    out: Path

    def known(self) -> set[str]:
        """Keys of what the results file has already."""
        return {record.key for record in read_records(self.out)}


@dataclass(frozen=True)
class SyntheticSuite:
    """A benchmark on sets that nothing was trained on; its module and its results file go by its name."""

    name: str
    seed: int
    """Nothing is trained with it."""
    sets: int
    quick_sets: int

    @property
    def module(self) -> str:
        """Where it is, as Python spells it."""
        return self.name.replace("-", "_")

    @property
    def out(self) -> Path:
        """Its results file, from the root of the repository."""
        return Path(f"benchmarks/results/{self.module}.jsonl")

    def generator(self, place: int) -> Generator:
        """What the set of that place is drawn from."""
        return Generator().manual_seed(self.seed * STRIDE + place)

    def blank(self, place: int, method: str, settings: Settings, *, n: int = 0, d: int = 0) -> Record:
        """A line about the set of that place, with nothing measured yet."""
        return Record(
            suite=self.name,
            data=f"universal/{place}",
            method=method,
            seed=self.seed,
            settings=settings,
            metrics={},
            seconds=0.0,
            n=n,
            d=d,
            k=0,
            commit=current_commit(),
            versions=library_versions(),
        )

    @contextmanager
    def asked(self, arguments: Sequence[str] | None) -> Iterator[Asked]:
        """Read the options, and lend a results file: one that does not last for a quick look."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.quality.{self.module}")
        parser.add_argument("--sets", type=int, default=self.sets, help="how many (default: %(default)s)")
        parser.add_argument("--quick", action="store_true", help="a few small sets, kept nowhere")
        parser.add_argument("--anew", action="store_true", help="forget what the file has")
        parser.add_argument("--out", type=Path, help=f"results file (default: {self.out})")
        options = parser.parse_args(arguments)
        with TemporaryDirectory() as spare:
            out = options.out or (Path(spare) / self.out.name if options.quick else self.out)
            if options.anew:
                out.unlink(missing_ok=True)
            yield Asked(self.quick_sets if options.quick else options.sets, options.quick, out)


def agreement_of_all(one: DrawnSet, some: Floats, chosen: Proposal) -> float:
    """Of all rows of a set with the truth, when what was chosen for some takes all."""
    labels = Partitioner.of(some, chosen).memberships(one.x.double().numpy()).argmax(axis=1)
    truth = one.labels.numpy()
    told = truth >= 0
    return adjusted_rand_index(truth[told], labels[told])
