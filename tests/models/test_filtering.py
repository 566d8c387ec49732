"""What filtering methods share: whom passes that come in turn get, and sets in another order."""

import pytest
import torch
from torch import Tensor

from coterie.models.filtering import arranged, first_come


def by_hand(claims: Tensor, turn: Tensor, *, leftovers_to_first: bool) -> Tensor:
    """Go from pass to pass, and let the first that takes a point keep those after it away."""
    rows = []
    for row in claims.sigmoid():
        chances, taken = torch.zeros_like(row), False
        for cluster in turn.argsort().tolist():
            chances[cluster] = 0.0 if taken else row[cluster]
            taken = taken or bool(row[cluster] > 0.5)
        if leftovers_to_first and not taken:
            chances = (turn == turn.min()).to(row.dtype)
        rows.append(chances / chances.sum())
    return torch.stack(rows)


@pytest.mark.parametrize("leftovers_to_first", [False, True])
def test_whom_an_earlier_pass_takes_no_later_one_gets(*, leftovers_to_first: bool) -> None:
    claims = torch.randn((200, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turn = torch.tensor([5, 0, 7, 2])  # passes in between found nobody
    belonging = first_come(claims, turn, leftovers_to_first=leftovers_to_first)
    torch.testing.assert_close(belonging, by_hand(claims, turn, leftovers_to_first=leftovers_to_first))


def test_points_that_every_pass_is_sure_to_refuse_still_belong_somewhere() -> None:
    claims = torch.tensor([[-2000.0, -3000.0]])
    assert first_come(claims, torch.tensor([1, 0]), leftovers_to_first=False).tolist() == [[1.0, 0.0]]
    assert first_come(claims, torch.tensor([1, 0]), leftovers_to_first=True).tolist() == [[0.0, 1.0]]


def test_sets_are_arranged_each_in_its_own_order() -> None:
    x = torch.arange(12.0).reshape(2, 3, 2)
    order = torch.tensor([[2, 0], [1, 1]])
    assert arranged(x, order).tolist() == [[[4.0, 5.0], [0.0, 1.0]], [[8.0, 9.0], [8.0, 9.0]]]
