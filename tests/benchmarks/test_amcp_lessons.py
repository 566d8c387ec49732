"""What networks learn from for AMCP's pictures: classes of two halves, to name or to sort, and none of the test's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Final

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.quality import amcp_data, amcp_lessons
from benchmarks.quality.amcp_data import Collection, Pictures, pictures
from benchmarks.quality.amcp_lessons import Lessons, lessons, moved
from coterie.amortized.tasks.classes import Distortion
from coterie.errors import InputError

MEMBERS, DRAWN = 10, 5
"""Pictures of a class, of which the last is held back; and how many are put together of each."""
OF_THE_TEST: Final = 255
"""What all pixels are of the classes of the test."""
DIGITS: Final = (0, 2, 4, 6, 8)
TURNS: Final = (0, 1, 3)
# Quarters of a picture are numbered 0 and 1 above 2 and 3; these are those of a half, from the left or from above, by
# how many quarters the picture is turned to the left.
UPPER: Final = MappingProxyType({(0, 1): 0, (1, 3): 1, (3, 2): 2, (2, 0): 3})
LOWER: Final = MappingProxyType({(2, 3): 0, (0, 2): 1, (1, 0): 2, (3, 1): 3})
LEFT: Final = MappingProxyType({(0, 2): 0, (1, 0): 1, (3, 1): 2, (2, 3): 3})
RIGHT: Final = MappingProxyType({(1, 3): 0, (3, 2): 1, (2, 0): 2, (0, 1): 3})


@dataclass(frozen=True)
class Half:
    """What half a picture shows."""

    number: int
    """Of the class."""
    turns: int
    member: int

    @property
    def kind(self) -> tuple[int, int]:
        return (self.number, self.turns)


def digits() -> Pictures:
    """Pictures of 4 by 4 pixels, each of which says whose it is: its class, its place there, and its quarter."""
    quarter = torch.tensor([[0, 1], [2, 3]]).repeat_interleave(2, 0).repeat_interleave(2, 1)
    classes = torch.arange(10).repeat_interleave(MEMBERS)
    code = classes // 2 * 40 + torch.arange(MEMBERS).repeat(10) * 4
    images = torch.where((classes % 2 == 0)[:, None, None], code[:, None, None] + quarter, OF_THE_TEST)
    return Pictures(images.to(torch.uint8).unsqueeze(1), classes)


def things() -> Pictures:
    """Photographs whose pixels are their class."""
    classes = torch.arange(200).repeat_interleave(3)
    return Pictures(classes.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4), classes)


def shown_by(quarters: Tensor, turns: Mapping[tuple[int, int], int]) -> Half:
    """Who is seen in two quarters of a picture, which must be of one."""
    first, second = quarters.tolist()
    assert first // 4 == second // 4, "a half is of one picture"
    number, member = divmod(first // 4, MEMBERS)
    return Half(2 * number, turns[first % 4, second % 4], member)


def halves(image: Tensor, *, side_by_side: bool) -> tuple[Half, Half]:
    corner = image[0, ::3, ::3].long()
    assert torch.equal(image[0].long(), corner.repeat_interleave(2, 0).repeat_interleave(2, 1))
    if side_by_side:
        return shown_by(corner[:, 0], LEFT), shown_by(corner[:, 1], RIGHT)
    return shown_by(corner[0], UPPER), shown_by(corner[1], LOWER)


def kinds_of(shown: Pictures, *, side_by_side: bool) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Class and quarter turns of both halves, one after the other, class by class; all of a class must be alike."""
    found = []
    for number in torch.unique(shown.classes).tolist():
        members = [halves(image, side_by_side=side_by_side) for image in shown.images[shown.classes == number]]
        assert len(members) == DRAWN
        (kinds,) = {(first.kind, second.kind) for first, second in members}
        found.append(kinds)
    return found


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    loaded = {"mnist": digits(), "tiny-imagenet": things()}
    monkeypatch.setattr(amcp_data, "LOADERS", {name: lambda one=one: one for name, one in loaded.items()})
    monkeypatch.setattr(amcp_lessons, "MEMBERS", DRAWN)
    pictures.cache_clear()
    lessons.cache_clear()
    yield
    pictures.cache_clear()
    lessons.cache_clear()


def test_halves_are_told_as_they_are_turned() -> None:
    """Lest what the other tests read be wrong in the same way as what they check."""
    image = digits().images[4 * MEMBERS + 7]
    for turns in range(4):
        turned = image.rot90(turns, (1, 2))
        for side_by_side in (False, True):
            assert halves(turned, side_by_side=side_by_side) == (Half(4, turns, 7), Half(4, turns, 7))


@pytest.mark.parametrize("n_classes", [None, 2, 3, 5])
def test_all_pairs_of_halves_are_a_class(n_classes: int | None) -> None:
    learned = lessons("mnist", n_classes)
    kinds = list(product(DIGITS[:n_classes], TURNS))  # none is upside down
    named = kinds_of(learned.named, side_by_side=False)
    assert len(named) == 9 * (n_classes or 5) ** 2
    assert len(set(named)) == len(named)
    assert set(named) == set(product(kinds, kinds))
    sorted_ones, held_back = (kinds_of(part, side_by_side=True) for part in (learned.sorted, learned.held_back))
    assert len(set(sorted_ones + held_back)) == len(sorted_ones + held_back)
    assert set(sorted_ones + held_back) == {(one, other) for one, other in product(kinds, kinds) if one != other}
    assert len(held_back) == len(sorted_ones + held_back) // 10


def test_a_class_of_equal_halves_has_whole_pictures() -> None:
    both = [halves(image, side_by_side=False) for image in lessons("mnist").named.images]
    whole = [pair for pair in both if pair[0].kind == pair[1].kind]
    assert len(whole) == 15 * DRAWN
    assert all(first == second for first, second in whole)
    assert any(first.member != second.member for first, second in both)  # which all others are put together of


def test_members_are_drawn_from_training_pictures_alone() -> None:
    learned = lessons("mnist")
    members: set[int] = set()
    for part, side_by_side in ((learned.named, False), (learned.sorted, True), (learned.held_back, True)):
        assert int(part.images.max()) < OF_THE_TEST
        assert part.images.dtype == torch.uint8
        for image in part.images:
            members |= {half.member for half in halves(image, side_by_side=side_by_side)}
    assert members == set(range(MEMBERS - 1))  # the last of each class is held back for choices


def test_many_classes_are_split_in_two() -> None:
    learned = lessons("tiny-imagenet")
    numbers = [set(part.classes.tolist()) for part in (learned.named, learned.sorted, learned.held_back)]
    assert [len(part) for part in numbers] == [45, 41, 4]
    assert set.union(*numbers) == {number for number in range(100) if number % 10 != 9}
    for part in (learned.named, learned.sorted, learned.held_back):
        assert part.n_pictures == 3 * len(torch.unique(part.classes))
        assert torch.equal(part.images, part.classes.reshape(-1, 1, 1, 1).expand_as(part.images))  # as they are
    few = lessons("tiny-imagenet", 20)
    assert set(few.named.classes.tolist()) | set(few.sorted.classes.tolist()) | set(few.held_back.classes.tolist()) == {
        *range(9),
        *range(10, 19),
        20,
        21,
    }


@pytest.mark.parametrize(("collection", "most"), [("mnist", 5), ("tiny-imagenet", 90)])
def test_too_few_and_too_many_classes_are_refused(collection: Collection, most: int) -> None:
    for refused in (-1, 0, 1, most + 1):
        with pytest.raises(InputError, match=f"n_classes={refused} must be from 2 to {most}, which {collection} "):
            lessons(collection, refused)


def parts(learned: Lessons) -> list[Tensor]:
    return [
        tensor for part in (learned.named, learned.sorted, learned.held_back) for tensor in (part.images, part.classes)
    ]


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("collection", ["mnist", "tiny-imagenet"])
def test_lessons_are_always_the_same(collection: Collection) -> None:
    first = parts(lessons(collection))
    lessons.cache_clear()
    assert all(torch.equal(one, other) for one, other in zip(first, parts(lessons(collection)), strict=True))


def test_only_photographs_are_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amcp_lessons, "MOVED", Distortion())
    for channels in (1, 3):
        images = torch.arange(40 * channels * 16).reshape(40, channels, 4, 4).to(torch.uint8)
        shown = moved(images, Generator().manual_seed(0))
        assert shown.dtype == torch.float32
        mirrored = (shown == images.flip(3).float() / 255).flatten(1).all(dim=1)
        unchanged = (shown == images.float() / 255).flatten(1).all(dim=1)
        assert (mirrored ^ unchanged).all()
        assert 10 < int(mirrored.sum()) < 30 if channels == 3 else not mirrored.any()


def test_pictures_are_moved_a_little() -> None:
    images = torch.randint(256, (6, 3, 16, 16), generator=Generator().manual_seed(1)).to(torch.uint8)
    shown = moved(images, Generator().manual_seed(0))
    assert shown.shape == images.shape
    assert 0 <= float(shown.min()) < float(shown.max()) <= 1 + 1e-6
    still = images.float() / 255
    for image, one, mirror in zip(shown, still, still.flip(3), strict=True):
        assert not torch.equal(image, one)
        assert not torch.equal(image, mirror)
    assert torch.equal(moved(images, Generator().manual_seed(0)), shown)
    assert not torch.equal(moved(images, Generator().manual_seed(1)), shown)
