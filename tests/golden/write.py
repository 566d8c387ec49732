"""Record the results of shipped weights on small sets like those they were trained on, for tests/test_golden.py.

python -m tests.golden.write NAME ...
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.baselines import weights_path
from coterie.config import from_dict
from coterie.judged.candidates.registry import generate_candidates
from coterie.judged.columns import Columns
from coterie.judged.cosine import CosineSpace
from coterie.judged.judge import Judge
from coterie.judged.space import Space
from coterie.judged.views import CosineView
from coterie.nn.model import SetModel, TaskBatch, build, to_tensors
from coterie.pretrained.registry import load_pretrained
from coterie.recipes import TASKS
from tests.conftest import MODELS

FOLDER = Path(__file__).parent
SETS, POINTS, ROWS, CLASSES = 3, 60, 5, 6
JUDGED_POINTS, JUDGED_CANDIDATES = 120, 8
DIGITS = 6


def observe(name: str) -> dict[str, Any]:
    """Return the results of weights as JSON values."""
    arrays, card = load_pretrained(weights_path(name))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = judge(name) if card["method"] == "judge" else cluster(name, to_tensors(arrays), card)
    finally:
        torch.set_num_threads(before)
    weights = round(float(sum(np.abs(value).sum(dtype=np.float64) for value in arrays.values())), DIGITS)
    return {"sum_of_weights": weights, **found}


def cluster(name: str, tensors: dict[str, Tensor], card: Mapping[str, Any]) -> dict[str, Any]:
    """Cluster sets like those that a network was trained on."""
    kind = MODELS[card["method"]]
    if not issubclass(kind, SetModel):
        raise TypeError(f"{name!r} is of the method {card['method']!r}, which does not cluster sets.")
    model = build(kind, from_dict(kind.Config, card["model"]), Generator())
    model.load_state_dict(tensors)
    batch = sets_for(card)
    found = model.eval().cluster_sets(batch.x, batch.valid, Generator().manual_seed(0))
    memberships = [model.memberships(x[:ROWS], each) for x, each in zip(batch.x, found, strict=True)]
    return {
        "sum_of_points": round(float(batch.x.double().abs().sum()), DIGITS),
        "n_clusters": [each.n_clusters for each in found],
        "labels": [each.labels.tolist() for each in found],
        "memberships": [[[round(value, DIGITS) for value in row] for row in each.tolist()] for each in memberships],
    }


def judge(name: str) -> dict[str, Any]:
    """Score the first candidates for a set, and count the clusters of the selected one."""
    reader = Judge.read(name)
    rng = np.random.default_rng(0)
    columns = 4 if reader.metric == "euclidean" else 24
    x = rng.normal(size=(JUDGED_POINTS, columns))
    centres, number = 4.0 * rng.normal(size=(3, columns)), rng.integers(3, size=JUDGED_POINTS)
    x += centres[number]
    if reader.metric == "euclidean":
        space = Space(np.column_stack([x, rng.integers(2, size=JUDGED_POINTS)]))  # with a junk column
    else:
        view = CosineView.fit(x.astype(np.float32), np.ones(columns), np.zeros(columns))
        space = CosineSpace(x.astype(np.float32), Columns.numbers(columns), view)
    candidates = generate_candidates(space, effort="fast", seed=0)
    scored = reader.score(space, candidates)
    return {
        "sum_of_points": round(float(np.abs(space.x).sum()), DIGITS),
        "n_clusters": [candidates[scored.choose()].n_clusters],
        "logits": [round(value, DIGITS) for value in scored.logits[:JUDGED_CANDIDATES].tolist()],
    }


def sets_for(card: Mapping[str, Any]) -> TaskBatch:
    """Sample sets like those that the weights were trained on, with fewer points."""
    settings = dict(card["recipe"]["tasks"])
    if card["model"].get("image") is not None:  # the real images are not available everywhere
        return images_for(card["model"]["image"])
    kind: Any = TASKS[settings.pop("kind")]
    batch = from_dict(kind, settings).sample(SETS, Generator().manual_seed(0))
    x, labels, valid = batch.x[:, :POINTS], batch.labels[:, :POINTS], batch.valid[:, :POINTS]
    if card.get("scaling") == "standard":
        x = (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True, correction=0)
    return TaskBatch(x, labels, valid)


def images_for(shape: Sequence[int]) -> TaskBatch:
    """Generate sets of images: a class is a pattern of bright bars, an image of it has a little noise."""
    rng = Generator().manual_seed(0)
    channels, height, width = shape
    patterns = torch.zeros(SETS, CLASSES, channels, height, width)
    for pattern in patterns.flatten(0, 1):
        top, left = (int(torch.randint(2, side - 6, (), generator=rng)) for side in (height, width))
        pattern[:, top : top + 3, 3:-3] = 1.0
        pattern[:, 3:-3, left : left + 3] = 1.0
    labels = torch.arange(POINTS).remainder(CLASSES).expand(SETS, -1)
    noise = 0.1 * torch.rand((SETS, POINTS, channels * height * width), generator=rng)
    x = patterns.flatten(2).gather(1, labels.unsqueeze(2).expand(-1, -1, noise.shape[2]))
    return TaskBatch((x + noise).clamp(max=1.0), labels, torch.ones_like(labels, dtype=torch.bool))


def expected_file(name: str) -> Path:
    """Return the golden file of a name."""
    return FOLDER / f"{name}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the golden files of the names on the command line."""
    parser = argparse.ArgumentParser(description="Record the results of shipped weights.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="as in src/coterie/pretrained/pretrained.toml")
    for name in parser.parse_args(arguments).names:
        lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in observe(name).items())
        expected_file(name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        sys.stdout.write(f"{expected_file(name)} written; review and commit it\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
