"""How well characters are clustered while the attention-based network is still trained: Figure 3 of its paper.

    python -m benchmarks.quality.omniglot_training --snapshots copies

The folder has copies of the run's ``state.safetensors`` that were put aside while ``recipes/abc-omniglot.toml`` was
trained. Each is measured on sets of the alphabets that the recipe holds back, images seen once, at the cut that
networks have before it is calibrated. What the results file has already is not measured again. All on one thread.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.data.tasks import OmniglotTasks
from benchmarks.quality.commands import exit_status
from benchmarks.quality.omniglot_methods import abc
from benchmarks.quality.omniglot_models import Base, base_of
from benchmarks.quality.omniglot_suite import DEFAULT_OUT, HELD_BACK, blank, run
from coterie.amortized.abc.network import AttentionBasedConfig
from coterie.base import one_thread
from coterie.checkpoint import load_checkpoint
from coterie.errors import InputError
from coterie.recipes import read_recipe

RECIPE: Final = Path("recipes/abc-omniglot.toml")
N_SETS: Final = 20
"""Of each alphabet."""
METHOD: Final = "abc-in-training"
WEIGHTS_PREFIX: Final = "weights."
"""Of the names of weights in the state of a run."""


def snapshots(folder: Path, recipe: Path) -> Iterator[tuple[int, Base]]:
    """Steps that were taken and the network after them, from the fewest up."""
    read = read_recipe(recipe)
    if not isinstance(read.tasks, OmniglotTasks) or not isinstance(read.model, AttentionBasedConfig):
        raise InputError(f"{str(recipe)!r} is no recipe of an attention-based network for Omniglot.")
    states = [load_checkpoint(path) for path in folder.glob("*.safetensors")]
    for tensors, card in sorted(states, key=lambda state: int(state[1]["step"])):
        weights = {
            name.removeprefix(WEIGHTS_PREFIX): value
            for name, value in tensors.items()
            if name.startswith(WEIGHTS_PREFIX)
        }
        yield int(card["step"]), base_of(weights, replace(read.model, views=1), read.tasks)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all snapshots; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.omniglot_training", description=__doc__)
    parser.add_argument("--snapshots", type=Path, required=True, help="folder of states of the run")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="of the run (default: %(default)s)")
    parser.add_argument("--sets", type=int, default=N_SETS, help="of each alphabet (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        for step, base in snapshots(options.snapshots, options.recipe):
            method = replace(abc(base), name=METHOD, settings={"step": step})
            empty = blank(HELD_BACK, "varying", options.sets)
            for said in run(method, "varying", base.held_back(), empty, options.out):
                print(f"step {step}: {said}", flush=True)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
