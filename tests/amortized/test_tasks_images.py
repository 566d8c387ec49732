"""Sets of images: members, sizes, turns and distortions."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.tasks.classes import Catalogue, Distortion, ImageTasks, Instances
from coterie.errors import ConfigError, InputError
from coterie.nn.model import TaskSampler

N_GROUPS, N_CLASSES, N_MEMBERS = 2, 4, 6
CLASSES = torch.arange(N_CLASSES).repeat_interleave(N_MEMBERS).repeat(N_GROUPS)
GROUPS = torch.arange(N_GROUPS).repeat_interleave(N_CLASSES * N_MEMBERS)
# The first pixels say which image it is; 4 by 4 with nothing else, so that turns show.
IMAGES = torch.zeros((len(CLASSES), 2, 4, 4), dtype=torch.uint8)
IMAGES[:, 0, 0, 0] = torch.arange(1, len(CLASSES) + 1)
IMAGES[:, 1, 0, 1] = 200
SETTINGS: dict[str, Any] = {"points": (12, 12), "clusters": (2, 4)}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def tasks(**settings: Any) -> ImageTasks:
    return ImageTasks(IMAGES, CLASSES, GROUPS, **SETTINGS | settings)


def which(x: Tensor) -> Tensor:
    """Number of each image, wherever its pixel has gone."""
    brightest: Tensor = x.reshape(*x.shape[:-1], 2, 16)[..., 0, :].amax(dim=-1)
    return (brightest * 255).round().long() - 1


def quarters(x: Tensor) -> Tensor:
    """How often each image was turned, by the corner that its pixel is in."""
    corner: Tensor = x.reshape(*x.shape[:-1], 2, 4, 4)[..., 0, :, :][..., [0, 3, 3, 0], [0, 0, 3, 3]]
    return corner.argmax(dim=-1)


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("sizes", ["composition", "dirichlet"])
@pytest.mark.parametrize("rotations", [False, True])
def test_labels_are_the_classes_of_one_group(sizes: Any, rotations: bool) -> None:
    sampler = tasks(sizes=sizes, rotations=rotations, clusters=(2, 6 if rotations else 4))
    assert isinstance(sampler, TaskSampler)
    batch = sampler.sample(40, seeded())
    assert (batch.x.shape, batch.x.dtype) == ((40, 12, 32), torch.float32)
    assert batch.valid.all()
    for x, labels in zip(batch.x, batch.labels, strict=True):
        number, turn = which(x), quarters(x)
        assert len(set(GROUPS[number].tolist())) == 1
        assert set(labels.tolist()) == set(range(int(labels.max()) + 1))
        true = CLASSES[number] * 4 + turn
        same = true.unsqueeze(0) == true.unsqueeze(1)
        assert torch.equal(same, labels.unsqueeze(0) == labels.unsqueeze(1))
        if not rotations:
            assert (turn == 0).all()
        if sizes == "composition":
            assert len(set(zip(number.tolist(), turn.tolist(), strict=True))) == 12, "nothing is shown twice"
    if rotations:
        assert set(quarters(batch.x).flatten().tolist()) == {0, 1, 2, 3}
    assert len(torch.unique(GROUPS[which(batch.x)])) == N_GROUPS


def test_same_generator_same_sets() -> None:
    sampler = tasks(rotations=True, max_degrees=15.0, max_stretch=0.1, max_shift=0.1)
    first, second, third = (sampler.sample(3, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.labels, second.labels)
    assert not torch.equal(first.x, third.x)
    distorted = tasks(max_degrees=180.0, max_stretch=0.5, max_shift=0.5).sample(5, seeded()).x
    assert 0 <= distorted.min() <= distorted.max() <= 1


@pytest.mark.usefixtures("untouched_random_state")
def test_binarised_pixels_are_on_as_often_as_they_are_grey() -> None:
    grey, bits = (tasks(binarised=binarised).sample(200, seeded()) for binarised in (False, True))
    assert torch.equal(grey.labels, bits.labels)
    assert bits.x.dtype == torch.float32
    assert set(torch.unique(bits.x).tolist()) == {0.0, 1.0}
    assert not bits.x[grey.x == 0].any()
    assert float(bits.x[grey.x == 200 / 255].mean()) == pytest.approx(200 / 255, abs=0.03)
    again = tasks(binarised=True).sample(200, seeded())
    assert torch.equal(bits.x, again.x)


def test_each_image_is_binarised_independently() -> None:
    everyone = IMAGES.new_full((6, 1, 4, 4), 128)
    sampler = ImageTasks(
        everyone,
        torch.zeros(6, dtype=torch.int64),
        torch.zeros(6, dtype=torch.int64),
        points=(12, 12),
        clusters=(1, 1),
        sizes="dirichlet",
        binarised=True,
    )
    (x,) = sampler.sample(1, seeded()).x
    assert len(x.unique(dim=0)) == 12


def test_points_are_in_random_order_and_their_number_varies() -> None:
    assert {tasks(points=(5, 7)).sample(2, seeded(seed)).x.shape[1] for seed in range(30)} == {5, 6, 7}
    labels = tasks().sample(200, seeded()).labels
    sorted_rows = (labels == labels.sort(dim=1).values).all(dim=1)
    assert sorted_rows.float().mean() < 0.05
    assert set(labels[:, 0].tolist()) == {0, 1, 2, 3}


def test_the_number_of_classes_is_uniform_from_the_fewest_that_are_enough() -> None:
    # Six members in each class: 13 points need three classes at least.
    batch = tasks(points=(13, 13), clusters=(1, 4)).sample(600, seeded())
    counts = batch.labels.amax(dim=1).bincount() / 600
    assert counts[:2].tolist() == [0, 0]
    torch.testing.assert_close(counts[2:], torch.full((2,), 0.5), atol=0.08, rtol=0)
    sampler = tasks(points=(200, 200), clusters=(3, 4), sizes="dirichlet", concentration=50.0)
    assert set(sampler.sample(50, seeded()).labels.amax(dim=1).tolist()) == {2, 3}


def test_dirichlet_leaves_classes_out_and_takes_members_again() -> None:
    sampler = tasks(points=(40, 40), clusters=(1, 3), sizes="dirichlet")
    batch = sampler.sample(300, seeded())
    kinds = batch.labels.amax(dim=1).bincount(minlength=3) / 300
    torch.testing.assert_close(kinds, torch.tensor([0.25, 0.5, 0.25]), atol=0.1, rtol=0)
    for x, labels in zip(batch.x[:20], batch.labels[:20], strict=True):
        for label in set(labels.tolist()):
            _, times = torch.unique(which(x[labels == label]), return_counts=True)
            assert len(times) == min(N_MEMBERS, int((labels == label).sum()))
            assert int(times.max() - times.min()) <= 1, "none is shown again before all are shown"


def test_quarter_turns_keep_pixels() -> None:
    batch = tasks(rotations=True, clusters=(2, 9)).sample(10, seeded())
    images = batch.x.reshape(-1, 2, 4, 4)
    for image, number, turn in zip(images, which(batch.x).flatten(), quarters(batch.x).flatten(), strict=True):
        torch.testing.assert_close(image, IMAGES[number].float().rot90(int(turn), (1, 2)) / 255)


def test_half_of_the_images_are_mirrored_left_to_right() -> None:
    plain, mirrored = (tasks(mirrored=mirrored).sample(40, seeded()) for mirrored in (False, True))
    assert torch.equal(plain.labels, mirrored.labels)
    turned_over = quarters(mirrored.x) == 3
    assert float(turned_over.float().mean()) == pytest.approx(0.5, abs=0.1)
    before, after = (batch.x.reshape(*batch.x.shape[:2], 2, 4, 4) for batch in (plain, mirrored))
    assert torch.equal(after[turned_over], before[turned_over].flip(3))
    assert torch.equal(after[~turned_over], before[~turned_over])


def test_nothing_is_distorted_by_nothing() -> None:
    images = torch.rand((5, 3, 8, 6), generator=seeded())
    assert Distortion().apply(images, seeded()) is images


@pytest.mark.parametrize("shape", [(21, 21), (31, 17)])
def test_turning_keeps_a_disc_and_moves_a_bar(shape: tuple[int, int]) -> None:
    height, width = shape
    y, x = torch.meshgrid(torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij")
    disc = torch.exp(-(x**2 + y**2) / 8)
    bar = torch.exp(-(x**2) / 4 - y**2 / 60)
    images = torch.stack([disc, bar]).unsqueeze(1).repeat(8, 1, 1, 1)
    turned = Distortion(max_degrees=40.0).apply(images, seeded())
    torch.testing.assert_close(turned[::2], images[::2], atol=0.06, rtol=0)
    assert ((turned[1::2] - images[1::2]).abs().amax(dim=(1, 2, 3)) > 0.1).float().mean() > 0.7


def test_shifts_and_stretches_stay_within_their_limits() -> None:
    images = torch.zeros((200, 1, 41, 41))
    images[:, :, 20, 20] = 1.0
    max_shift = Distortion(max_shift=0.1).apply(images, seeded())
    place = max_shift.flatten(1).argmax(dim=1)
    offset = torch.stack([place // 41, place % 41]) - 20
    assert offset.abs().max() <= 5  # a tenth of 41, and rounding
    assert offset.abs().max() >= 3
    square = torch.zeros((200, 1, 41, 41))
    square[:, :, 13:28, 13:28] = 1.0
    area = Distortion(max_stretch=0.15).apply(square, seeded()).sum(dim=(1, 2, 3)) / 15**2
    assert 1 / (1.15**2 + 0.15**2) - 0.05 < area.min() < 0.95
    assert 1.05 < area.max() < 1 / (0.85**2 - 0.15**2) + 0.05


def test_classes_of_different_groups_are_different() -> None:
    catalogue = Catalogue.of(torch.tensor([0, 0, 1, 0]), torch.tensor([5, 5, 5, 2]))
    assert catalogue.count.tolist() == [1, 2, 1]
    assert [group.tolist() for group in catalogue.groups] == [[0], [1, 2]]
    assert catalogue.order.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"points": (5, 4)}, ConfigError, r"points=\(5, 4\)"),
        ({"clusters": (0, 4)}, ConfigError, r"clusters=\(0, 4\)"),
        ({"clusters": (13, 14)}, ConfigError, "needs more points than the 12"),
        ({"concentration": 0.0}, ConfigError, "concentration=0.0"),
        ({"max_degrees": 181.0}, ConfigError, "max_degrees=181.0"),
        ({"max_stretch": 1.0}, ConfigError, "max_stretch=1.0"),
        ({"clusters": (5, 6)}, InputError, "has 4 classes, fewer than the 5"),
        ({"points": (12, 25)}, InputError, "any 4 of which may have fewer than 25 members"),
        ({"clusters": (1, 1)}, InputError, "any 1 of which may have fewer than 12 members"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tasks(**settings)


def test_invalid_images_are_rejected() -> None:
    with pytest.raises(InputError, match="give bytes of shape"):
        ImageTasks(IMAGES[:-1], CLASSES, GROUPS)
    with pytest.raises(InputError, match="square images, not 4 x 3"):
        ImageTasks(IMAGES[..., :3], CLASSES, GROUPS, rotations=True, **SETTINGS)
    with pytest.raises(InputError, match="48 class labels and 47 group labels"):
        ImageTasks(IMAGES, CLASSES, GROUPS[:-1], **SETTINGS)
    with pytest.raises(InputError, match="at least one element"):
        Catalogue.of(CLASSES[:0], GROUPS[:0])


def test_members_repeat_where_a_class_has_too_few() -> None:
    instances = Instances((500, 500), (2, 2), "dirichlet", 5.0)
    catalogue = Catalogue.of(CLASSES, GROUPS)
    instances.check(catalogue)
    assert instances.sample(catalogue, 2, seeded()).index.shape == (2, 500)
