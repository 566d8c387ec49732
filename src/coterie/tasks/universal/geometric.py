"""The geometric half of the prior: shapes in the plane, in space, and in a few features more."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.bodies import FLATS, SOLIDS
from coterie.tasks.universal.curves import CURVES, thin
from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.edges import EDGES
from coterie.tasks.universal.layouts import LAYOUTS, draw_radii
from coterie.tasks.universal.members import SHARES, Members, draw_shares, most_clusters, share_out
from coterie.tasks.universal.recoverable import Draft, standardised
from coterie.tasks.universal.scenes import SCENES, SceneMaker
from coterie.tasks.universal.wanted import HARD, SOFT

ALL_SCENES: Final[Mapping[str, SceneMaker]] = MappingProxyType({**SCENES, **EDGES})
PLANS: Final[Mapping[str, float]] = MappingProxyType(
    {"scattered": 4.0, "packed": 3.5, "grid": 3.5, "grouped": 2.0}
    | dict.fromkeys(SCENES, 1.0)
    | dict.fromkeys(EDGES, 0.7)
    | {"links": 0.3}
)
"""Layouts and scenes, by how often in the plane."""
SPATIAL: Final = frozenset({"rings", "halos", "links"})
"""Scenes that are at home in three dimensions."""
SOLID_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {"ball-gaussian": 4, "gaussian": 5, "student": 1, "ball": 2, "box": 1, "shell": 0.7, "peaked": 0.7, "skewed": 1}
)
SOFT_KINDS: Final = frozenset({"ball-gaussian", "gaussian", "student", "peaked", "skewed"})
"""Kinds that are densest in the middle."""
KIND_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    dict(SOLID_WEIGHTS) | dict.fromkeys(FLATS, 0.9) | dict.fromkeys(CURVES, 0.8)
)

Story = dict[str, float | str]


def draw_geometric(n_points: int, width: int, max_clusters: int, dice: Dice) -> Draft:
    """A set of shapes, its clusters as loose as they happened to be drawn."""
    plan = dice.pick({name: 2.0 if width > 2 and name in SPATIAL else weight for name, weight in PLANS.items()})
    drawer = _bodies if plan in LAYOUTS else _scene
    draft = drawer(plan, n_points, width, max_clusters, dice)
    warped = dice.happens(0.12)
    finish = _finish(width, dice, warped=warped)
    story = {"layout": plan, "warped": "yes" if warped else "no", **draft.story}
    return Draft(draft.labels, lambda looseness: finish(draft.build(looseness)), draft.clarity, story)


def _bodies(plan: str, n_points: int, width: int, max_clusters: int, dice: Dice) -> Draft:
    """Bodies of one kind or several, at places of their own."""
    n_clusters = _number_of_clusters(plan, n_points, max_clusters, dice)
    kinds = _kinds(plan, n_clusters, dice)
    radii, extents = (torch.ones(n_clusters), "equal") if plan == "grid" else draw_radii(n_clusters, dice)
    if extents != "equal" and dice.happens(0.4):
        area = radii ** min(width, 2)
        shares, sizes = area / area.sum(), "by area"
    else:
        shares, sizes = draw_shares(n_clusters, dice, {"even": 0.8, "uneven": 0.2} if plan == "grid" else SHARES)
    members = share_out(n_points, shares, dice, alike=dice.happens(0.7 if plan == "grid" else 0.3))
    bodies = _draw_bodies(kinds, members, width, dice) * members.spread(radii).unsqueeze(1)
    centres = LAYOUTS[plan](radii, width, dice)
    places = members.spread(centres)
    bridged = plan != "grid" and dice.happens(0.1)
    if bridged:
        places, bodies = _bridge(members, centres, places, bodies, dice)
    story: Story = {"bodies": ", ".join(sorted(set(kinds))), "extents": extents, "sizes": sizes}
    story["bridges"] = "yes" if bridged else "no"
    clarity = SOFT if SOFT_KINDS.issuperset(kinds) else HARD
    return Draft(members.owner, lambda looseness: places + looseness * bodies, clarity, story)


def _bridge(
    members: Members, centres: Float[Tensor, "K D"], places: Tensor, bodies: Tensor, dice: Dice
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """Places and bodies with a thin bridge from each of some clusters half way to the nearest other."""
    apart = torch.cdist(centres, centres).fill_diagonal_(torch.inf)
    towards = members.spread(centres[apart.argmin(dim=1)] - centres)
    building = members.spread(dice.uniform(0, 1, members.n_clusters) < 0.6)
    on_bridge = (building & (dice.uniform(0, 1, members.n_points) < dice.number(0.02, 0.08))).unsqueeze(1)
    half_way = places + dice.uniform(0, 0.5, members.n_points, 1) * towards
    return torch.where(on_bridge, half_way, places), torch.where(on_bridge, 0.1 * bodies, bodies)


def _number_of_clusters(plan: str, n_points: int, max_clusters: int, dice: Dice) -> int:
    most = most_clusters(n_points, max_clusters, 8 if plan == "grid" else 14)
    if plan == "grid":
        low, high = (9, 50) if dice.happens(0.75) else (3, 9)
    elif plan == "grouped":
        low, high = 4, 16
    else:
        low, high = (2, 7) if dice.happens(0.75) else (6, 36)
    return dice.integer(min(low, most), min(high, most))


def _kinds(plan: str, n_clusters: int, dice: Dice) -> list[str]:
    """The kind of each cluster: mostly one or two kinds in a set, sometimes many."""
    weights = SOLID_WEIGHTS if plan == "grid" and dice.happens(0.8) else KIND_WEIGHTS
    if dice.happens(0.35):
        weights = {kind: weight for kind, weight in SOLID_WEIGHTS.items() if kind in SOFT_KINDS}
    number = 1 if plan == "grid" else int(dice.pick({"1": 0.5, "2": 0.25, "3": 0.1, "9": 0.15}))
    palette = [dice.pick(weights) for _ in range(number)]
    return [palette[dice.integer(0, number - 1)] for _ in range(n_clusters)]


def _draw_bodies(kinds: list[str], members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Bodies of all clusters around the origin, turned."""
    body = torch.empty(members.n_points, width)
    for kind in sorted(set(kinds)):
        chosen = members.spread(torch.tensor([one == kind for one in kinds]))
        some = Members(members.owner[chosen], members.n_clusters, members.alike)
        body[chosen] = _of_kind(kind, some, width, dice)
    if members.alike and dice.happens(0.5):
        return body
    turn = dice.frames(1 if members.alike else members.n_clusters, width, width)
    return torch.einsum("nd,nde->ne", body, members.spread(turn.expand(members.n_clusters, -1, -1)))


def _of_kind(kind: str, members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    if kind in SOLIDS:
        return SOLIDS[kind](members, width, dice)
    flat = FLATS[kind](members, dice) if kind in FLATS else thin(kind, members, dice)
    return _lift(flat, width, dice)


def _lift(flat: Float[Tensor, "N E"], width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Points of few dimensions in more, with a little noise in those that are new."""
    if flat.shape[1] == width:
        return flat
    more = dice.number(0.02, 0.1) * dice.normal(len(flat), width)
    more[:, : flat.shape[1]] = flat
    return more


def _scene(plan: str, n_points: int, width: int, max_clusters: int, dice: Dice) -> Draft:
    """Clusters that only make sense together."""
    scene = ALL_SCENES[plan](n_points, max_clusters, width, dice)
    places = torch.zeros(n_points, width)
    places[:, : scene.places.shape[1]] = scene.places
    fuzz = _lift(scene.fuzz, width, dice)
    # A column of nothing but the noise of the lift would count as much as the others once columns are standardised.
    upright = width == scene.places.shape[1] and dice.happens(0.4)
    turn = torch.eye(width) if upright else dice.frames(1, width, width)[0]
    return Draft(scene.members.owner, lambda looseness: (places + looseness * fuzz) @ turn, scene.clarity, {})


def _finish(width: int, dice: Dice, *, warped: bool) -> Callable[[Tensor], Tensor]:
    """What is done to the whole set: bent, stretched, scaled and moved."""
    first, bias = dice.normal(width, 6) * dice.number(0.5, 1.2), dice.normal(6)
    second = dice.normal(6, width) * dice.number(0.2, 0.5)
    stretch = dice.log_uniform(0.4, 2.5, width) if dice.happens(0.15) else torch.ones(width)
    scale, offset = dice.log_number(0.01, 1000.0) * stretch, 3 * dice.normal(width)

    def finish(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        if warped:
            level = standardised(x)
            x = level + (level @ first + bias).tanh() @ second
        return (x + offset) * scale

    return finish
