"""Orders that depend on values alone, and draws that depend on numbers of points alone."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator

from coterie.ops.partitions import lexicographic_order, subsample


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@given(n=st.integers(0, 12), d=st.integers(1, 3), seed=st.integers(0, 100))
def test_the_order_is_numpys(n: int, d: int, seed: int) -> None:
    x = torch.randint(3, (2, n, d), generator=seeded(seed)).float()  # with ties
    order = lexicographic_order(x, torch.ones((2, n), dtype=torch.bool))
    for i in range(2):
        theirs = np.lexsort(x[i].numpy().T[::-1])
        assert order[i].tolist() == theirs.tolist()


def test_arrangement_and_padding_do_not_matter() -> None:
    x = torch.randn((1, 9, 2), generator=seeded())
    valid = torch.ones((1, 9), dtype=torch.bool)
    ordered = x[0, lexicographic_order(x, valid)[0]]
    place = torch.randperm(14, generator=seeded(1))[:9]
    padded, there = torch.full((1, 14, 2), -50.0), torch.zeros((1, 14), dtype=torch.bool)
    padded[0, place], there[0, place] = x[0], True
    assert torch.equal(padded[0, lexicographic_order(padded, there)[0, :9]], ordered)


def test_only_large_sets_are_subsampled() -> None:
    valid = torch.arange(10) < torch.tensor([10, 4, 0, 10]).unsqueeze(1)
    chosen = subsample(5, valid, seeded())
    assert chosen.sum(dim=1).tolist() == [5, 4, 0, 5]
    assert (chosen <= valid).all()
    assert torch.equal(chosen[0], chosen[3])
    assert torch.equal(subsample(5, valid[:1], seeded())[0], chosen[0])
    wider = torch.nn.functional.pad(valid, (0, 3))
    assert torch.equal(subsample(5, wider, seeded())[:, :10], chosen)
    assert not torch.equal(subsample(5, valid, seeded(1)), chosen)


def test_subsampling_is_uniform_and_takes_one_number_from_the_generator() -> None:
    few, many = seeded(), seeded()
    subsample(5, torch.ones((1, 3), dtype=torch.bool), few)
    subsample(5, torch.ones((4, 30), dtype=torch.bool), many)
    assert torch.equal(few.get_state(), many.get_state())
    valid = torch.ones((1, 6), dtype=torch.bool)
    counts = sum(subsample(2, valid, seeded(seed))[0].long() for seed in range(600))
    assert isinstance(counts, torch.Tensor)
    assert counts.sum() == 1200
    assert ((counts > 150) & (counts < 250)).all()
