"""What makes the judge choose well: how much it was taught, what it is told, what it is, and who proposes.

    python -m benchmarks.quality.judge_ablations FOLDER [--only sets,evidence] [--steps 600] [--quick] [--anew]

FOLDER is that of a run of the judge's recipe, or the one with its judged sets. The last of them, as many as the recipe
holds out, are for measuring, those before for training, all with the recipe's settings but for the number of steps.
Each variant is one line of the results file, and those that are there already are not run again; several processes may
work on different parts (``--only``) at once. One thread; a training of 600 steps takes some two minutes.

What every variant chooses for the held-out sets of more than one cluster is compared with the truth. Where an algorithm
is left out, all that it was the first to propose is, even if another proposed the same; ranks are taken anew among what
is left, agreements with other proposals are not. A set for which nothing is left counts as one cluster. Refining, and
how many rows are looked at, need rows, which judged sets do not have: ``judge_rows`` is about these.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.quality.judge_workshop import GROUPS, PROPOSERS, RULES, Outcome, Workshop
from benchmarks.quality.records import REPOSITORY, append_line, current_commit, library_versions, read_lines
from coterie.base import one_thread
from coterie.errors import InputError
from coterie.judged.training import JudgedSet, read_judged
from coterie.recipes import Recipe, read_recipe

OUT: Final = Path("benchmarks/results/judge_ablations.jsonl")
RECIPE: Final = REPOSITORY / "recipes" / "judge.toml"
STEPS: Final = 600
SIZES: Final = (300, 1_000, 3_000)
QUICK_SETS: Final = 60
QUICK_HELD_OUT: Final = 20
QUICK_STEPS: Final = 2
PARTS: Final = ("whole", "sets", "evidence", "kind", "rule", "proposers")


@dataclass(frozen=True)
class AblationRecord:
    """One line of the results file: what a variant chose."""

    part: str
    variant: str
    training_sets: int
    available: int
    """Sets to learn from that there were; those that are held out come after them."""
    held_out: int
    """Sets that were held out; those of one cluster among them are not measured."""
    steps: int
    seed: int
    metrics: Mapping[str, float]
    """Means over the sets, and after each name "_se" its standard error."""
    scores: Sequence[float]
    """ARI of what was chosen, for each set, so that variants can be compared set by set."""
    seconds: float
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> str:
        """What makes two runs the same run."""
        return json.dumps([self.part, self.variant, self.training_sets, *self.circumstances])

    @property
    def circumstances(self) -> tuple[int, int, int, int]:
        """What variants must share to be compared."""
        return self.available, self.held_out, self.steps, self.seed


@dataclass(frozen=True)
class Variant:
    """Something to be measured."""

    part: str
    name: str
    training_sets: int
    """That it learns from."""
    measure: Callable[[], Outcome]


def variants(shop: Workshop) -> Iterator[Variant]:
    """All of them, part by part."""
    every = len(shop.training)
    yield Variant("whole", "the judge", every, lambda: shop.measured(shop.judge))
    for size in (size for size in SIZES if size < every):
        yield Variant("sets", f"{size:,}", size, partial(_trained, shop, sets=size))
    for name, columns in GROUPS.items():
        yield Variant("evidence", name, every, partial(_trained, shop, hidden=columns))
    yield Variant("kind", "the judge, proposals apart", every, partial(_trained, shop, attends=False))
    yield Variant("kind", "trees", every, lambda: shop.measured(shop.trees()))
    for name, column in RULES.items():
        yield Variant("rule", name, 0, partial(_by_rule, shop, column))
    for name, column in PROPOSERS.items():
        yield Variant("proposers", name, every, partial(_without_proposer, shop, column))


def _trained(shop: Workshop, *, sets: int | None = None, hidden: Sequence[int] = (), attends: bool = True) -> Outcome:
    return shop.measured(shop.trained(sets, hidden, attends=attends))


def _by_rule(shop: Workshop, column: int) -> Outcome:
    return shop.measured(lambda one: int(one.columns[:, column].argmax()))


def _without_proposer(shop: Workshop, column: int) -> Outcome:
    return shop.measured(shop.judge, without=column)


def judged_in(folder: Path) -> list[JudgedSet]:
    """All judged sets of a recipe's run, or of the folder itself."""
    inside = folder / "judged"
    sets = read_judged(inside if inside.is_dir() else folder)
    if not sets:
        raise InputError(f"{str(folder)!r} has no judged sets. Name the folder of a run of {RECIPE.name}.")
    return sets


def run(shop: Workshop, parts: Sequence[str], held_out: int, out: Path) -> Iterator[AblationRecord]:
    """Measure what the file does not have yet."""
    known = {record.key for record in read_lines(out, AblationRecord)}
    for variant in variants(shop):
        blank = AblationRecord(
            part=variant.part,
            variant=variant.name,
            training_sets=variant.training_sets,
            available=len(shop.training),
            held_out=held_out,
            steps=shop.steps,
            seed=shop.recipe.seed,
            metrics={},
            scores=(),
            seconds=0.0,
            commit=current_commit(),
            versions=library_versions(),
        )
        if variant.part not in parts or blank.key in known:
            continue
        record = _measured(variant, blank)
        append_line(out, record)
        yield record


def _measured(variant: Variant, blank: AblationRecord) -> AblationRecord:
    began = time.process_time()
    found = variant.measure()
    seconds = round(time.process_time() - began, 1)
    scores = [round(score, 4) for score in found.ari]
    fields = vars(blank) | {"metrics": found.summary(), "scores": scores, "seconds": seconds}
    return AblationRecord(**fields)


def split(sets: Sequence[JudgedSet], recipe: Recipe, held_out: int, steps: int) -> Workshop:
    """The last sets to measure with, and those before to train on."""
    several = [one for one in sets[-held_out:] if one.truth > 1]
    if not 0 < held_out < len(sets) or not several:
        raise InputError(f"Of {len(sets)} judged sets {held_out} cannot be held out. Make more, or hold out fewer.")
    return Workshop(sets[:-held_out], several, recipe, steps)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.judge_ablations")
    parser.add_argument("folder", type=Path, help="run of the recipe, or its judged sets")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each training (default: %(default)s)")
    parser.add_argument("--held-out", type=int, help="sets to measure with, the last (default: as the recipe)")
    parser.add_argument("--quick", action="store_true", help="few sets and steps, kept nowhere")
    parser.add_argument("--anew", action="store_true", help="forget what the file has")
    parser.add_argument("--out", type=Path, help=f"results file (default: {OUT})")
    options = parser.parse_args(arguments)
    recipe, parts = read_recipe(RECIPE), options.only.split(",")
    held_out = options.held_out or (recipe.proposals.held_out if recipe.proposals else 0)
    try:
        if unknown := set(parts) - set(PARTS):
            raise InputError(f"Unknown parts: {', '.join(unknown)}. Known are: {', '.join(PARTS)}.")
        sets = judged_in(options.folder)
        if options.quick:
            shop = split(sets[:QUICK_SETS], recipe, QUICK_HELD_OUT, QUICK_STEPS)
        else:
            shop = split(sets, recipe, held_out, options.steps)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with TemporaryDirectory() as spare:
        out = options.out or (Path(spare) / OUT.name if options.quick else OUT)
        if options.anew:
            out.unlink(missing_ok=True)
        for record in run(shop, parts, QUICK_HELD_OUT if options.quick else held_out, out):
            print(f"{record.part:10} {record.variant:34} {dict(record.metrics)} {record.seconds} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
