"""Weights that ship, and those of baselines, give the results recorded in tests/golden.

To add a name, run ``python -m tests.golden.write NAME``, after recipes/register.py registered it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.baselines import WEIGHTS
from coterie.pretrained.registry import pretrained_names
from tests.golden.write import FOLDER, expected_file, observe

NAMES = [*pretrained_names(), *(path.stem for path in WEIGHTS.glob("*.safetensors"))]


def expected(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(expected_file(name).read_text(encoding="utf-8"))
    return content


def test_every_name_has_a_golden_file() -> None:
    assert sorted(path.stem for path in Path(FOLDER).glob("*.json")) == sorted(NAMES), (
        "run: python -m tests.golden.write NAME"
    )


@pytest.mark.parametrize("name", NAMES)
def test_results_equal_the_golden_file(name: str) -> None:
    now, then = observe(name), expected(name)
    assert now.keys() == then.keys()
    assert now["sum_of_points"] == pytest.approx(then["sum_of_points"], rel=1e-5), "the sets differ"
    assert now["sum_of_weights"] == pytest.approx(then["sum_of_weights"], rel=1e-6), "the weights differ"
    assert now["n_clusters"] == then["n_clusters"]
    assert max(now["n_clusters"]) > 1
    if "logits" in then:  # a judge
        assert now["logits"] == pytest.approx(then["logits"], abs=1e-2)
        return
    assert now["labels"] == then["labels"]
    for ours, theirs in zip(now["memberships"], then["memberships"], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-3, rtol=0)
