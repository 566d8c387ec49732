"""A set's own frame: scikit-learn's principal directions, and what it does not depend on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from torch import Generator, Tensor

from coterie.amortized.filtering import PrincipalAxes, principal_axes

SHAPES = [(9, 4), (40, 5), (6, 6), (5, 12)]
"""Points and numbers of a point: products are of the numbers in all but the last, and there of the points."""


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def points(sets: int, n: int, width: int, seed: int = 0) -> Tensor:
    """Sets that extend further in some directions than in others, and more to one side."""
    x = torch.randn((sets, n, width), generator=seeded(seed), dtype=torch.float64)
    mixed = torch.randn((sets, width, width), generator=seeded(seed + 1), dtype=torch.float64)
    return x.exp() @ mixed + 10.0


def frames_of(x: Tensor, count: int) -> PrincipalAxes:
    return principal_axes(x, torch.ones(x.shape[:2], dtype=torch.bool), count)


def seen(x: Tensor, count: int) -> Tensor:
    """Points as seen from the frames of their sets."""
    return frames_of(x, count).project(x)


def turned(x: Tensor, seed: int = 3) -> Tensor:
    """The sets, all turned alike about the origin."""
    width = x.shape[2]
    random = torch.randn((width, width), generator=seeded(seed), dtype=x.dtype)
    turn: Tensor = torch.linalg.qr(random).Q
    return x @ turn


@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_directions_are_scikit_learns(n: int, width: int) -> None:
    x = points(3, n, width)
    for one, found in zip(x.numpy(), seen(x, 3).numpy(), strict=True):
        theirs = PCA(3).fit_transform(one)
        theirs /= np.sqrt(np.square(theirs).mean())  # one scale for all directions
        signs = np.sign((theirs * found).sum(axis=0))
        np.testing.assert_allclose(found, theirs * signs, atol=1e-9)


@given(n=st.integers(2, 12), width=st.integers(1, 12), count=st.integers(1, 5), seed=st.integers(0, 100))
def test_coordinates_are_one_on_average_by_their_squares(n: int, width: int, count: int, seed: int) -> None:
    x = points(2, n, width, seed)
    found = seen(x, count)
    assert found.shape == (2, n, count)
    torch.testing.assert_close(found.square().mean(dim=(1, 2)), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.mean(dim=1), torch.zeros((2, count), dtype=torch.float64), atol=1e-9, rtol=0)
    lengths = found.square().sum(dim=1)
    assert (lengths.diff(dim=1) <= 1e-9).all()  # the longest first


@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_padding_and_arrangement_change_nothing(n: int, width: int) -> None:
    x = points(2, n, width)
    frames = frames_of(x, 3)
    place = torch.randperm(n + 4, generator=seeded(5))[:n]
    for fill in (0.0, -1e4):
        padded, there = x.new_full((2, n + 4, width), fill), torch.zeros((2, n + 4), dtype=torch.bool)
        padded[:, place], there[:, place] = x, True
        found = principal_axes(padded, there, 3)
        torch.testing.assert_close(found.centre, frames.centre)
        torch.testing.assert_close(found.axes, frames.axes, atol=1e-9, rtol=1e-6)  # signs included
        torch.testing.assert_close(found.project(padded)[:, place], frames.project(x), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_axes_point_to_where_the_set_is_more_stretched_out(n: int, width: int) -> None:
    x = points(4, n, width)
    assert (seen(x, 3).pow(3).sum(dim=1) > 0).all()
    torch.testing.assert_close(seen(-x, 3), seen(x, 3), atol=1e-8, rtol=1e-6)  # upside down, the same


@pytest.mark.parametrize(("n", "width"), SHAPES)
def test_only_the_arrangement_of_a_set_matters(n: int, width: int) -> None:
    x = points(2, n, width)
    for other in (turned(x), x + 5.0, 0.01 * x, 300.0 * turned(x) - 2.0):
        torch.testing.assert_close(seen(other, 3).abs(), seen(x, 3).abs(), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "width"), [(9, 6), (5, 40), (300, 60), (90, 300)])
def test_directions_that_a_set_has_not_got_are_zeros(n: int, width: int, dtype: torch.dtype) -> None:
    x = (points(2, n, 2) @ torch.randn((2, width), generator=seeded(4), dtype=torch.float64)).to(dtype)
    found = seen(x, 7)
    assert found.isfinite().all()
    assert (found[..., :2].square().mean(dim=1) > 0).all()
    assert not found[..., 2:].any()
    torch.testing.assert_close(found.square().mean(dim=(1, 2)), torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("width", [1, 2, 20])
def test_sets_that_extend_nowhere_are_seen_as_zeros(width: int) -> None:
    x = torch.cat((torch.full((1, 9, width), 3.0), torch.full((1, 9, width), -7.5)))
    valid = torch.ones((2, 9), dtype=torch.bool)
    valid[1, 1:] = False  # a point alone
    for there in (valid, torch.zeros_like(valid)):
        frames = principal_axes(x, there, 2)
        assert not frames.axes.any()
        assert frames.centre.isfinite().all()
        assert not frames.project(x).any()


@pytest.mark.parametrize("value", [0.1, 3.3, 1e3 / 7])
def test_equal_points_whose_mean_is_rounded_are_seen_as_zeros(value: float) -> None:
    assert not seen(torch.full((1, 40, 5), value), 3).any()


def test_axes_of_symmetric_sets_do_not_depend_on_the_order_of_points() -> None:
    for seed in range(9):
        half = torch.randn((1, 2, 6), generator=seeded(seed))
        x = torch.cat((half, -half), dim=1) + 1.0
        torch.testing.assert_close(seen(x.flip(1), 2).flip(1), seen(x, 2), atol=1e-3, rtol=1e-3)


def test_flips_change_signs_only() -> None:
    x = points(40, 9, 5)
    frames = frames_of(x, 3)
    mirrored = frames.flip_at_random(seeded())
    assert mirrored.centre is frames.centre
    signs = mirrored.axes / frames.axes
    assert torch.equal(signs, signs[:, :1].expand_as(signs))  # an axis as a whole
    assert set(signs.flatten().tolist()) == {-1.0, 1.0}
    chosen = {tuple(row) for row in signs[:, 0].tolist()}
    assert len(chosen) == 8  # all ways to mirror three axes, each set in its own
    torch.testing.assert_close(mirrored.project(x), frames.project(x) * signs[:, :1])


@pytest.mark.usefixtures("untouched_random_state")
def test_flips_are_seeded_by_the_generator() -> None:
    frames = frames_of(points(20, 9, 5), 3)
    first, again, other = (frames.flip_at_random(seeded(seed)).axes for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_gradients_treat_the_axes_as_constants() -> None:
    x = points(1, 9, 4).requires_grad_()
    frames = frames_of(x, 2)
    assert not frames.axes.requires_grad
    frames.project(x)[0, 3, 1].backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0, 3], frames.axes[0, :, 1])
    assert math.isclose(float(x.grad.abs().sum()), float(x.grad[0, 3].abs().sum()))  # others have no part in it
