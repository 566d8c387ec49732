"""Weights that ship find what they have always found.

A new name joins by ``python -m tests.golden.write NAME``, after recipes/register.py has registered it.
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


def test_every_name_has_expectations_and_no_others_have() -> None:
    assert sorted(path.stem for path in Path(FOLDER).glob("*.json")) == sorted(NAMES), (
        "run: python -m tests.golden.write NAME"
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_was_found_is_found_again(name: str) -> None:
    now, then = observe(name), expected(name)
    assert now.keys() == then.keys()
    assert now["sum_of_points"] == pytest.approx(then["sum_of_points"], rel=1e-5), "the sets are others"
    assert now["sum_of_weights"] == pytest.approx(then["sum_of_weights"], rel=1e-6), "the weights are others"
    assert now["n_clusters"] == then["n_clusters"]
    if "logits" in then:  # of a judge
        assert now["logits"] == pytest.approx(then["logits"], abs=1e-2)
        return
    assert now["labels"] == then["labels"]
    for ours, theirs in zip(now["memberships"], then["memberships"], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_sets_have_something_to_find(name: str) -> None:
    assert max(expected(name)["n_clusters"]) > 1
