"""Set-up and fixtures of all tests."""

import os
import random
from collections.abc import Iterator

# Several threads would slow each other down (docs/decisions/0002). Libraries read this when they are loaded, and
# processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.shapes import ShapeChecker

# Shapes in signatures are checked in the packages that compute with arrays.
ShapeChecker([f"coterie.{name}" for name in ("ops", "nn", "judged", "clam", "amortized", "tcc")]).install()

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import settings
from sklearn.utils import check_random_state

from benchmarks import baselines
from coterie.methods import METHODS, get_method

settings.register_profile("coterie", deadline=None, max_examples=25)
settings.load_profile("coterie")

baselines.register()
MODELS = {name: kind for name in METHODS if (kind := get_method(name).load_network())} | baselines.MODELS
"""Every network, those of baselines too, by the name that checkpoints carry."""


@pytest.fixture
def untouched_random_state() -> Iterator[None]:
    """Fail the test if it moved the global random state of torch, numpy or Python."""
    torch_before, python_before = torch.get_rng_state(), random.getstate()
    numpy_before = check_random_state(np.random).get_state(legacy=False)
    yield
    assert torch.equal(torch.get_rng_state(), torch_before), "torch's global random state was moved"
    assert random.getstate() == python_before, "Python's global random state was moved"
    numpy_after = check_random_state(np.random).get_state(legacy=False)
    np.testing.assert_equal(numpy_after, numpy_before, "numpy's global random state was moved")


@pytest.fixture(scope="session")
def blobs() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Three well-separated groups of 60, 50 and 40 rows in 4 columns of unlike units, and who is in which."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [60, 50, 40])
    means = np.array([[0.0, 0.0, 0.0, 0.0], [9.0, 0.0, 9.0, 0.0], [0.0, 9.0, 0.0, 9.0]])
    order = rng.permutation(len(truth))
    X = (means[truth] + rng.normal(size=(len(truth), 4))) * [1.0, 10.0, 0.1, 100.0] + [5.0, -20.0, 1.0, 1000.0]
    return X[order], truth[order]
