"""Sizes of classes obey the law that Algorithm 1 of ABC has."""

from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator

from coterie.amortized.tasks import classes as compositions
from coterie.amortized.tasks.classes import fewest_classes, sample_composition
from coterie.errors import InputError


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@given(st.data(), st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(0, 99))
def test_sizes_add_up_within_what_there_is(data: st.DataObject, available: list[int], seed: int) -> None:
    n_points = data.draw(st.integers(len(available), sum(available)))
    sizes = sample_composition(torch.tensor(available), n_points, seeded(seed)).tolist()
    assert sum(sizes) == n_points
    assert all(1 <= size <= most for size, most in zip(sizes, available, strict=True))


@pytest.mark.parametrize("tries", [64, 1])
def test_sizes_follow_the_law_of_rejection_sampling(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one try most sizes come from weighing all ways; with many, from the draws themselves."""
    monkeypatch.setattr(compositions, "_TRIES", tries)
    available, n_points, n_draws = torch.tensor([3, 4, 2, 5]), 10, 3000
    rest = n_points - len(available)
    expected: Counter[tuple[int, ...]] = Counter()
    for cuts in product(range(rest + 1), repeat=3):
        sizes = tuple(end - start + 1 for start, end in pairwise([0, *sorted(cuts), rest]))
        if all(size <= most for size, most in zip(sizes, available.tolist(), strict=True)):
            expected[sizes] += 1
    generator = seeded()
    found = Counter(tuple(sample_composition(available, n_points, generator).tolist()) for _ in range(n_draws))
    assert set(found) <= set(expected)
    scale = n_draws / sum(expected.values())
    chi_squared = sum((found[sizes] - scale * count) ** 2 / (scale * count) for sizes, count in expected.items())
    assert len(expected) == 20
    assert chi_squared < 43.8  # 0.999 quantile for 19 degrees of freedom


@pytest.mark.parametrize("left_over", [0, 1, 7])
def test_what_hardly_ever_fits_is_found(left_over: int) -> None:
    """Many classes of very unlike sizes, of which nearly all members are needed."""
    generator = seeded()
    for _ in range(8):
        available = 1 + torch.randint(30, (20,), generator=generator) ** 2 // 30
        n_points = int(available.sum()) - left_over
        sizes = sample_composition(available, n_points, generator)
        assert int(sizes.sum()) == n_points
        assert ((sizes >= 1) & (sizes <= available)).all()


def test_the_only_way_is_found_and_fewest_classes_count_the_smallest() -> None:
    assert sample_composition(torch.full((5,), 20), 100, seeded()).tolist() == [20] * 5
    assert sample_composition(torch.ones(7, dtype=torch.int64), 7, seeded()).tolist() == [1] * 7
    assert sample_composition(torch.tensor([9]), 4, seeded()).tolist() == [4]
    available = torch.tensor([9, 1, 5, 2])
    assert [fewest_classes(available, n) for n in (1, 2, 3, 4, 8, 9, 17, 18)] == [1, 2, 2, 3, 3, 4, 4, 5]


@pytest.mark.parametrize(("available", "n_points"), [([2, 2], 5), ([2, 2], 1), ([2, 0], 2), ([], 0)])
def test_invalid_settings_are_rejected(available: list[int], n_points: int) -> None:
    with pytest.raises(InputError, match=f"{n_points} points cannot be divided among {len(available)} classes"):
        sample_composition(torch.tensor(available, dtype=torch.int64), n_points, seeded())
