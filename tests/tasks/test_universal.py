"""The universal prior: every set is well formed, of some known kind, and as recoverable as was drawn."""

import math
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.judged.prior.geometric import LAYOUTS, PLANS
from coterie.judged.prior.sampling import (
    LEAST_MEMBERS,
    MOST_ASKED,
    SOFT,
    Dice,
    Draft,
    Members,
    Wanted,
    add_strays,
    draw_shares,
    look,
    settle,
    share_out,
    standardised,
)
from coterie.judged.prior.shapes import CURVES, FLATS, SOLIDS, thin
from coterie.judged.prior.tables import KINDS, SORTS, STYLES, draw_dress
from coterie.judged.prior.universal import DrawnSet, UniversalTasks
from coterie.nn.model import TaskSampler
from coterie.recipes import TASKS

SMALL = UniversalTasks(min_points=50, max_points=250)
MANY = 350


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def drawn() -> list[DrawnSet]:
    """Some hundreds of sets."""
    generator = seeded()
    return [SMALL.draw(generator) for _ in range(MANY)]


def agreement_by_hand(x: Tensor, labels: Tensor) -> float:
    """Cohen's kappa of the labels and the vote of eight neighbours, of all points."""
    spread = x.double().std(dim=0, correction=0)
    level = ((x.double() - x.double().mean(dim=0)) / torch.where(spread > 0, spread, 1)).float().double()
    voted = []
    for index, row in enumerate(level):
        distance = (level - row).square().sum(dim=1)
        distance[index] = math.inf
        votes = torch.zeros(int(labels.max()) + 1)
        for rank, near in enumerate(distance.argsort(stable=True)[:8], start=1):
            votes[labels[near]] += 1 / rank
        voted.append(int(votes.argmax()))
    said, true = (torch.bincount(one, minlength=len(votes)) / len(x) for one in (torch.tensor(voted), labels))
    by_chance = float((said * true).sum())
    return (float((torch.tensor(voted) == labels).float().mean()) - by_chance) / (1 - by_chance)


def test_every_set_is_well_formed(drawn: list[DrawnSet]) -> None:
    for one in drawn:
        assert one.x.dtype == torch.float32
        assert one.labels.dtype == torch.int64
        assert one.x.shape[0] == one.labels.shape[0]
        assert 50 <= len(one.x) <= 250
        assert 1 <= one.x.shape[1] <= 64
        assert one.x.isfinite().all()
        counts = torch.bincount(one.labels[one.labels >= 0])
        assert 2 <= len(counts) <= 50
        assert int(counts.min()) >= LEAST_MEMBERS
        assert int(one.labels.min()) >= -1
        assert float((one.labels < 0).float().mean()) == pytest.approx(float(one.story["strays"]))


def test_sizes_vary(drawn: list[DrawnSet]) -> None:
    points = torch.tensor([len(one.x) for one in drawn]).double()
    assert float(points.log().mean()) == pytest.approx((math.log(50) + math.log(250)) / 2, abs=0.08)
    clusters = Counter(int(one.labels.max()) + 1 for one in drawn)
    assert set(range(2, 11)) <= set(clusters)
    assert max(clusters) >= 20  # that many need more points than most of these sets have
    assert 0.15 < clusters[2] / MANY < 0.45
    widths = Counter(one.x.shape[1] for one in drawn)
    assert {1, 2, 3, 4, 5} <= set(widths)
    assert max(widths) > 50
    assert 0.3 < widths[2] / MANY < 0.55


def test_both_halves_are_about_as_common(drawn: list[DrawnSet]) -> None:
    kinds = Counter(one.kind for one in drawn)
    assert set(kinds) == {"geometric", "table"}
    assert 0.4 < kinds["geometric"] / MANY < 0.6


def parts_of(drawn: list[DrawnSet], name: str) -> Iterator[str]:
    for one in drawn:
        if name in one.story:
            yield from str(one.story[name]).split(", ")


def test_everything_comes_up(drawn: list[DrawnSet]) -> None:
    assert set(parts_of(drawn, "layout")) == {*PLANS, *SORTS}
    assert set(parts_of(drawn, "columns")) == set(STYLES)
    assert set(parts_of(drawn, "kinds")) == set(KINDS)
    assert set(parts_of(drawn, "sizes")) == {"even", "uneven", "contrast", "by area"}
    assert set(parts_of(drawn, "extents")) == {"equal", "varied", "contrast"}
    for yes in ("warped", "bridges"):
        assert set(parts_of(drawn, yes)) == {"yes", "no"}
    assert set(parts_of(drawn, "irrelevant_groups")) == set("23456")
    irrelevant = [float(share) for share in parts_of(drawn, "irrelevant")]
    assert min(irrelevant) == 0
    assert 0.5 < max(irrelevant) <= 0.7
    assert 0.03 < sum(float(one.story["strays"]) > 0 for one in drawn) / MANY < 0.2


def test_every_body_comes_up() -> None:
    planar, generator = UniversalTasks(min_points=80, max_points=160, max_features=2), seeded()
    shapes = [planar.draw(generator) for _ in range(250)]
    assert set(parts_of(shapes, "bodies")) == {*SOLIDS, *FLATS, *CURVES}
    assert sum(one.kind == "geometric" for one in shapes) > 200


def test_sets_are_as_recoverable_as_wanted(drawn: list[DrawnSet]) -> None:
    for one in drawn:
        inside = one.labels >= 0
        x, labels = one.x[inside], one.labels[inside]
        assert float(one.story["wanted_low"]) <= float(one.story["agreement"]) <= float(one.story["wanted_high"])
        if inside.all() and len(x) <= MOST_ASKED and one.kind == "table":
            assert look(x, labels).agreement == pytest.approx(float(one.story["agreement"]))
    found = {
        kind: [float(one.story["agreement"]) for one in drawn if one.kind == kind] for kind in ("geometric", "table")
    }
    clear = {kind: sum(value >= 0.97 for value in values) / len(values) for kind, values in found.items()}
    assert 0.55 < clear["geometric"] < 0.85
    assert 0.2 < clear["table"] < 0.5
    assert min(found["table"]) < 0.62


def test_the_measure_by_hand(drawn: list[DrawnSet]) -> None:
    for one in [one for one in drawn if len(one.x) < 100 and one.story["strays"] == 0 and one.kind == "geometric"][:8]:
        assert look(one.x, one.labels).agreement == pytest.approx(agreement_by_hand(one.x, one.labels), abs=0.02)


def test_the_measure_knows_chance_and_hidden_clusters() -> None:
    dice = Dice(seeded())
    labels = share_out(400, torch.tensor([0.8, 0.2]), dice).owner
    blind = look(dice.normal(400, 3), labels)
    assert abs(blind.agreement) < 4 * 0.057  # its standard deviation over many such sets
    assert blind.worst < 0.3
    shifted = dice.normal(400, 3) + 20 * labels.unsqueeze(1)
    assert look(shifted, labels) == look(shifted * torch.tensor([1e-3, 1.0, 1e3]), labels)
    assert look(shifted, labels).agreement == 1


def test_settling_brings_a_draft_to_what_is_wanted() -> None:
    dice = Dice(seeded())
    members = share_out(250, torch.full((3,), 1 / 3), dice)
    places, noise = 3 * members.owner.unsqueeze(1).float(), dice.normal(250, 1)
    draft = Draft(members.owner, lambda looseness: places + looseness * noise, SOFT, {})
    loose = []
    for middle in (0.6, 0.75, 0.9):
        settled = settle(draft, Wanted(middle - 0.03, middle + 0.03))
        assert settled is not None
        x, found = settled
        assert abs(found - middle) <= 0.03
        assert look(x, members.owner).agreement == found
        loose.append(float((x - places).std()))
    assert loose == sorted(loose, reverse=True)
    nothing = Draft(members.owner, lambda _: noise, SOFT, {})
    assert settle(nothing, Wanted(0.6, 1.0)) is None


@pytest.mark.usefixtures("untouched_random_state")
def test_the_generator_decides_everything() -> None:
    first, again = seeded(3), seeded(3)
    for _ in range(10):
        one, same = SMALL.draw(first), SMALL.draw(again)
        assert torch.equal(one.x, same.x)
        assert torch.equal(one.labels, same.labels)
        assert one.story == same.story
    assert not torch.equal(one.x[:1, :1], SMALL.draw(first).x[:1, :1])


def test_the_number_of_threads_changes_nothing() -> None:
    before = torch.get_num_threads()
    try:
        sets = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            generator = seeded(11)
            sets.append([UniversalTasks(min_points=600, max_points=800).draw(generator) for _ in range(4)])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for one, same in zip(*sets, strict=True):
        assert torch.equal(one.x, same.x)


def test_batches() -> None:
    generator = seeded(1)
    shapes = set()
    for _ in range(6):
        batch = SMALL.sample(3, generator)
        assert batch.x.shape[:2] == batch.labels.shape == batch.valid.shape
        assert len(batch.x) == 3
        assert batch.valid.all()
        assert batch.x.isfinite().all()
        for labels in batch.labels:
            assert int(torch.bincount(labels).min()) >= LEAST_MEMBERS
        shapes.add(batch.x.shape)
    assert len(shapes) == 6
    assert isinstance(SMALL, TaskSampler)
    assert TASKS["universal"] is UniversalTasks


@given(st.integers(0, 2**32), st.integers(20, 200), st.integers(1, 64), st.integers(2, 12))
def test_any_settings_give_sets(seed: int, points: int, width: int, clusters: int) -> None:
    tasks = UniversalTasks(min_points=points, max_points=points, max_features=width, max_clusters=clusters)
    one = tasks.draw(seeded(seed))
    assert one.x.shape[0] == points
    assert one.x.shape[1] <= width
    assert one.x.isfinite().all()
    counts = torch.bincount(one.labels[one.labels >= 0])
    assert 2 <= len(counts) <= clusters
    assert int(counts.min()) >= LEAST_MEMBERS


@given(st.integers(0, 2**32), st.integers(2, 20), st.integers(100, 300))
def test_shares_are_kept_and_floors_too(seed: int, n_clusters: int, n_points: int) -> None:
    dice = Dice(seeded(seed))
    shares, _ = draw_shares(n_clusters, dice)
    members = share_out(n_points, shares, dice)
    expected = LEAST_MEMBERS + shares * (n_points - LEAST_MEMBERS * n_clusters)
    assert int(members.counts().sum()) == n_points
    assert float((members.counts() - expected).abs().max()) <= 1.01
    for cluster in range(n_clusters):
        rank = members.rank()[members.owner == cluster]
        assert rank.tolist() == list(range(len(rank)))


@pytest.mark.parametrize("kind", [*SOLIDS, *FLATS, *CURVES])
@pytest.mark.parametrize("alike", [False, True])
def test_bodies_lie_around_the_origin(kind: str, alike: bool) -> None:
    dice = Dice(seeded())
    members = Members(dice.integers(0, 3, 400), 4, alike)
    if kind in SOLIDS:
        body = SOLIDS[kind](members, 2, dice)
        assert SOLIDS[kind](members, 5, dice).shape == (400, 5)
    else:
        body = FLATS[kind](members, dice) if kind in FLATS else thin(kind, members, dice)
    assert body.shape == (400, 2)
    assert 0.15 < float(body.norm(dim=1).median()) < 1.3
    assert float(body.norm(dim=1).quantile(0.95)) < 2.2


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_layouts_keep_clusters_apart(name: str, width: int) -> None:
    for seed in range(5):
        centres = LAYOUTS[name](torch.ones(12), width, Dice(seeded(seed)))
        assert centres.shape == (12, width)
        apart = torch.cdist(centres, centres).fill_diagonal_(math.inf)
        assert float(apart.amin(dim=1).median()) > (1.0 if width > 1 else 0.2)


@pytest.mark.parametrize("style", STYLES)
def test_columns_look_like_those_of_tables(style: str) -> None:
    dice = Dice(seeded())
    dress = draw_dress(30, dice, style)
    table = dress(dice.normal(200, 30))
    assert table.shape == (200, 30)
    assert table.isfinite().all()
    for start, stop in dress.blocks:
        assert torch.equal(table[:, start:stop].sum(dim=1), torch.ones(200))
    for column, kind in enumerate(dress.kinds):
        levels = len(set(table[:, column].tolist()))
        assert levels <= {"binary": 2, "category": 2, "ordinal": 5, "whole": 60}.get(kind, 200)
        if kind in {"plain", "exponential", "heavy", "squashed"}:
            assert levels > 150
    assert set(dress.kinds) <= set(STYLES[style])


def test_strays_are_labelled_so() -> None:
    x, labels = add_strays(torch.zeros(20, 2), torch.zeros(20, dtype=torch.int64), 5, Dice(seeded()))
    assert len(x) == len(labels) == 25
    assert int((labels == -1).sum()) == 5


def test_standardising_leaves_constants_at_zero() -> None:
    level = standardised(torch.tensor([[1.0, 7e5], [3.0, 7e5]]))
    assert level.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"min_points": 10}, "min_points=10"),
        ({"min_points": 300, "max_points": 200}, "max_points=200"),
        ({"max_features": 0}, "max_features=0"),
        ({"max_features": 65}, "max_features=65"),
        ({"max_clusters": 1}, "max_clusters=1"),
    ],
)
def test_settings_are_checked(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        UniversalTasks(**wrong)
