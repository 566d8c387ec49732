"""The geometric half of the prior: shapes in the plane, in space, and in a few features more."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.judged.prior.sampling import (
    CROSSING,
    HARD,
    JOINT,
    SHARES,
    SOFT,
    Clarity,
    Dice,
    Draft,
    Members,
    draw_shares,
    few_members,
    most_clusters,
    share_out,
    standardised,
)
from coterie.judged.prior.shapes import CURVES, FLATS, SOLIDS, progress, thin

TRIED: Final = 16
"""Spots tried for each cluster."""
RADII: Final[Mapping[str, float]] = MappingProxyType({"equal": 0.35, "varied": 0.4, "contrast": 0.25})
"""How different clusters are in extent, by how often."""
Layout = Callable[[Float[Tensor, " K"], int, Dice], Float[Tensor, "K D"]]
"""Centres of clusters, given by their radii and the number of features."""


def draw_radii(n_clusters: int, dice: Dice) -> tuple[Float[Tensor, " K"], str]:
    """Extents of clusters, and the name of how they were drawn."""
    style = dice.pick(RADII)
    if style == "equal":
        return torch.ones(n_clusters), style
    if style == "varied":
        return dice.log_uniform(0.5, 1.6, n_clusters), style
    large = dice.uniform(0, 1, n_clusters) < dice.number(0.1, 0.5)
    large[0] = True
    return torch.where(large, dice.log_number(2.5, 8.0), 1.0), style


def grow(radii: Float[Tensor, " K"], width: int, gaps: Float[Tensor, " K"], dice: Dice) -> Float[Tensor, "K D"]:
    """One cluster after the other beside one that is there, as far off as its gap says: 1 is where two would touch."""
    count = len(radii)
    centres = torch.zeros(count, width)
    directions = torch.nn.functional.normalize(dice.normal(count, TRIED, width), dim=2)
    beside = dice.uniform(0, 1, count, TRIED)
    for place in range(1, count):
        anchor = (beside[place] * place).long()
        reach = gaps[place] * (radii[anchor] + radii[place])
        spots = centres[anchor] + directions[place] * reach.unsqueeze(1)
        apart = torch.cdist(spots, centres[:place]) / (radii[:place] + radii[place])
        free = apart.amin(dim=1).clamp(max=float(gaps[place]))
        # Of the spots that are free, the one closest to the first cluster keeps the whole compact.
        best = (free - 1e-3 * spots.norm(dim=1) / reach.amax()).argmax()
        centres[place] = spots[best]
    return centres


def scattered(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """Apart from each other, some more than others."""
    return grow(radii, width, dice.number(1.1, 1.6) * dice.log_uniform(1, 2.5, len(radii)), dice)


def packed(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """Side by side, touching or nearly so."""
    return grow(radii, width, torch.full((len(radii),), dice.number(0.75, 1.15)), dice)


def grid(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """On a square or shifted grid, a circle or a line, more or less exactly."""
    count, pitch = len(radii), 2 * float(radii.max()) * dice.number(0.8, 1.6)
    form = dice.pick({"square": 0.5, "shifted": 0.25, "circle": 0.15, "line": 0.1})
    place = torch.arange(count)
    if form == "circle":
        angle = 2 * math.pi * place / count
        flat = torch.stack((angle.cos(), angle.sin()), dim=1) / (2 * math.sin(math.pi / count))
    else:
        columns = count if form == "line" else max(2, math.ceil(math.sqrt(count) * dice.number(0.8, 1.25)))
        row, column = torch.div(place, columns, rounding_mode="floor"), place % columns
        shift = 0.5 * (row % 2) if form == "shifted" else 0.0
        flat = torch.stack((column + shift, row * (math.sqrt(0.75) if form == "shifted" else 1.0)), dim=1)
    centres = torch.zeros(count, width)
    centres[:, : min(width, 2)] = pitch * flat[:, : min(width, 2)]
    if width == 1:
        centres[:, 0] = pitch * place
    if width > 2 and form == "square":
        corner = max(2, math.ceil(count ** (1 / 3)))
        powers = torch.tensor([1, corner, corner**2])
        centres[:, :3] = pitch * (torch.div(place.unsqueeze(1), powers, rounding_mode="floor") % corner)
        centres[:, 2] = pitch * torch.div(place, corner**2, rounding_mode="floor")
    return centres + pitch * dice.number(0, 0.15) * dice.normal(count, width)


def grouped(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """Groups of clusters: close within a group, groups far from each other."""
    count = len(radii)
    n_groups = max(2, min(6, round(count / dice.number(2.0, 4.0))))
    group = torch.arange(count) % n_groups
    centres = torch.zeros(count, width)
    gap = dice.number(0.85, 1.4)
    extent = torch.zeros(n_groups)
    for one in range(n_groups):
        inside = group == one
        placed = grow(radii[inside], width, torch.full((int(inside.sum()),), gap), dice)
        placed = placed - placed.mean(dim=0)
        extent[one] = float((placed.norm(dim=1) + radii[inside]).max())
        centres[inside] = placed
    return centres + grow(extent, width, gap * dice.log_uniform(1.3, 2.5, n_groups), dice)[group]


LAYOUTS: Final[Mapping[str, Layout]] = MappingProxyType(
    {"scattered": scattered, "packed": packed, "grid": grid, "grouped": grouped}
)
"""Layouts of clusters that have a body each, by name."""


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """Points as places and what is added to them, more or less of it."""

    members: Members
    places: Float[Tensor, "N E"]
    """In two or three dimensions."""
    fuzz: Float[Tensor, "N E"]
    """Steps away from the places, as long as drawn."""
    clarity: Clarity = JOINT
    """How well the truth of such scenes is to be seen."""


SceneMaker = Callable[[int, int, int, Dice], Scene]
"""A scene of so many points, with at most so many clusters, in at most so many dimensions."""


def _polar(radius: Tensor, angle: Tensor) -> Float[Tensor, "N 2"]:
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)


def _fuzz(members: Members, width: int, dice: Dice, low: float = 0.02, high: float = 0.1) -> Float[Tensor, "N E"]:
    return members.each(low, high, dice).unsqueeze(1) * dice.normal(members.n_points, width)


def moons(n_points: int, _: int, __: int, dice: Dice) -> Scene:
    """Two half rings, one hooked into the other."""
    members = few_members(n_points, 2, dice)
    angle = 0.5 * math.pi * (1 + progress(members, dice)) * dice.number(0.8, 1.15)
    second = members.owner == 1
    angle = torch.where(second, angle + math.pi, angle)
    places = _polar(torch.where(second, dice.number(0.7, 1.2), 1.0), angle)
    offset = torch.tensor([dice.number(0.7, 1.2), dice.number(-0.1, 0.6)])
    return Scene(members, places + second.unsqueeze(1) * offset, _fuzz(members, 2, dice))


def spirals(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Two to four arms that wind around each other."""
    members = few_members(n_points, min(most, 4), dice)
    along = (0.5 + 0.5 * progress(members, dice)).sqrt()
    # With few points more turns would only be a cloud: the steps along an arm must be shorter than those between arms.
    turns = dice.number(0.4, max(0.5, min(2.0, 0.25 * math.sqrt(n_points) / members.n_clusters)))
    angle = 2 * math.pi * (turns * along + members.owner / members.n_clusters)
    return Scene(members, _polar(0.1 + 0.9 * along, angle), _fuzz(members, 2, dice, 0.01, 0.05))


def parallel(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """The same curve several times, side by side."""
    members = replace(few_members(n_points, min(most, 6), dice), alike=True)
    name = dice.pick({"line": 1, "wave": 1, "parabola": 1, "zigzag": 1, "arc": 1, "worm": 1})
    places = CURVES[name](members, progress(members, dice), dice)
    aside = dice.number(0.25, 0.6) * members.owner + dice.uniform(-0.05, 0.05, members.n_clusters)[members.owner]
    direction = torch.tensor([0.0, 1.0] if name != "arc" else [1.0, 0.0])
    slip = 0.4 if name == "line" else 0.1
    lengthwise = dice.uniform(-slip, slip, members.n_clusters)[members.owner]
    moved = places + aside.unsqueeze(1) * direction + lengthwise.unsqueeze(1) * direction.flip(0)
    return Scene(members, moved, _fuzz(members, 2, dice, 0.02, 0.08))


def rays(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Lines or needles that leave one point in different directions."""
    members = few_members(n_points, min(most, 7), dice)
    along = dice.number(0.0, 0.3) + dice.uniform(0, 1, n_points)
    angle = 2 * math.pi * (members.owner / members.n_clusters) + 0.3 * dice.normal(members.n_clusters)[members.owner]
    return Scene(members, _polar(along, angle), _fuzz(members, 2, dice, 0.02, 0.08))


def crossing(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Curves that run across each other."""
    members = few_members(n_points, min(most, 4), dice)
    name = dice.pick({"line": 2, "wave": 1, "worm": 1, "arc": 1})
    places = CURVES[name](members, progress(members, dice), dice)
    angle = math.pi * (torch.arange(members.n_clusters) + dice.uniform(-0.2, 0.2, members.n_clusters))
    angle = (angle / members.n_clusters)[members.owner]
    turn = torch.stack((_polar(torch.ones(n_points), angle), _polar(torch.ones(n_points), angle + math.pi / 2)), dim=1)
    shift = 0.3 * dice.normal(members.n_clusters, 2)[members.owner]
    return Scene(
        members, torch.einsum("ne,nef->nf", places, turn) + shift, _fuzz(members, 2, dice, 0.01, 0.05), CROSSING
    )


def rings(n_points: int, most: int, space: int, dice: Dice) -> Scene:
    """Circles or spheres around each other, and perhaps a filled core."""
    n_clusters = dice.integer(2, most_clusters(n_points, min(most, 4), 20))
    radii = dice.uniform(0.5, 1.2, n_clusters)
    cored = dice.happens(0.7)
    radii[0] = 0.0 if cored else radii[0]
    radii = radii.cumsum(0)
    shares = radii + 0.4 if dice.happens(0.6) else draw_shares(n_clusters, dice)[0]
    members = share_out(n_points, shares / shares.sum(), dice)
    if space > 2 and dice.happens(0.6):
        direction = torch.nn.functional.normalize(dice.normal(n_points, 3), dim=1)
    else:
        direction = _polar(torch.ones(n_points), math.pi * progress(members, dice))
    fuzz = _fuzz(members, direction.shape[1], dice, 0.02, 0.1)
    core = cored * (members.owner == 0).unsqueeze(1) * dice.number(0.5, 3)
    return Scene(members, members.spread(radii).unsqueeze(1) * direction, fuzz * (1 + core))


def enclosed(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Some clusters inside a large ring, arc or frame."""
    members = few_members(n_points, min(most, 6), dice)
    angle = math.pi * dice.number(0.6, 1.0) * progress(members, dice)
    outline = _polar(torch.ones(n_points), angle)
    if dice.happens(0.3):
        outline = outline / outline.abs().amax(dim=1, keepdim=True)
    inside = max(1, members.n_clusters - 1)
    spot = 2 * math.pi * (torch.arange(members.n_clusters) / inside + dice.number(0, 1))
    away = dice.uniform(0.35, 0.6, members.n_clusters) if inside > 1 else dice.uniform(0, 0.3, members.n_clusters)
    centre = _polar(away, spot)[members.owner]
    first = (members.owner == 0).unsqueeze(1)
    body = members.each(0.05, 0.16, dice).unsqueeze(1) * dice.normal(n_points, 2)
    return Scene(members, torch.where(first, outline, centre), torch.where(first, _fuzz(members, 2, dice), body))


def halos(n_points: int, most: int, space: int, dice: Dice) -> Scene:
    """Dense cores, each within a thin cloud that is a cluster of its own: atoms."""
    pairs = 1 if dice.happens(0.6) or most < 4 or n_points < 100 else 2
    shares = dice.uniform(0.3, 0.7, 2 * pairs)
    members = share_out(n_points, shares / shares.sum(), dice)
    width = 3 if space > 2 and dice.happens(0.8) else 2
    direction = torch.nn.functional.normalize(dice.normal(n_points, width), dim=1)
    outer = (members.owner % 2 == 1).unsqueeze(1)
    inner_edge, outer_edge = dice.number(0.2, 0.8), dice.number(0.9, 1.4)
    radius = dice.uniform(inner_edge, outer_edge, n_points, 1)
    places = torch.zeros(n_points, width)
    places[:, 0] = 2.4 * outer_edge * torch.div(members.owner, 2, rounding_mode="floor")
    core = dice.number(0.02, 0.25) * dice.normal(n_points, width)
    return Scene(members, places + outer * radius * direction, torch.where(outer, 0.05 * core, core))


def links(n_points: int, most: int, space: int, dice: Dice) -> Scene:
    """Rings that hang in each other as in a chain, in space, or that cross in the plane."""
    members = few_members(n_points, min(most, 4), dice)
    angle = math.pi * progress(members, dice)
    ring = _polar(torch.ones(n_points), angle)
    along = dice.number(0.9, 1.3) * members.owner
    if space > 2:
        even = members.owner % 2 == 0
        second = torch.where(even, ring[:, 1], 0.0)
        places = torch.stack((ring[:, 0] + along, second, torch.where(even, 0.0, ring[:, 1])), dim=1)
    else:
        places = torch.stack((ring[:, 0] + 1.3 * along, ring[:, 1] + 0.7 * (members.owner % 2)), dim=1)
    clarity = JOINT if space > 2 else CROSSING
    return Scene(members, places, _fuzz(members, places.shape[1], dice, 0.02, 0.12), clarity)


SCENES: Final[Mapping[str, SceneMaker]] = MappingProxyType(
    {
        "moons": moons,
        "spirals": spirals,
        "parallel": parallel,
        "rays": rays,
        "crossing": crossing,
        "rings": rings,
        "enclosed": enclosed,
        "halos": halos,
        "links": links,
    }
)
"""Scenes by name; those of clusters that share an edge are in ``edges``."""


def tiles(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Squares or diamonds with a corner or an edge in common."""
    members = few_members(n_points, min(most, 6), dice)
    owner = members.owner
    inside = dice.uniform(-1, 1, n_points, 2)
    per_row = dice.integer(2, 3)
    spot = torch.stack((owner % per_row, torch.div(owner, per_row, rounding_mode="floor")), dim=1).float()
    if dice.happens(0.5):  # corner to corner, as on a chessboard
        spot = torch.stack((owner, owner % 2 if dice.happens(0.5) else owner), dim=1).float()
    if dice.happens(0.3):
        inside = inside.sign() * inside.abs() ** 1.5  # denser in the middle
    return Scene(members, 2 * spot * dice.number(1.03, 1.25), inside)


def slices(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """A disc cut like a cake, the pieces drawn apart a little."""
    members = few_members(n_points, min(most, 6), dice)
    owner = members.owner
    count = members.n_clusters
    middle = 2 * math.pi * owner / count
    angle = middle + (math.pi / count) * dice.uniform(-1, 1, n_points)
    radius = dice.uniform(0, 1, n_points).sqrt()
    inside = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    apart = torch.stack((middle.cos(), middle.sin()), dim=1) * dice.number(0.06, 0.3)
    outwards = torch.stack((middle.cos(), middle.sin()), dim=1) * (0.6 if count > 2 else 0.42)
    return Scene(members, apart + outwards, inside - outwards)


def stripes(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Bands side by side, each of its own length, thickness and density."""
    members = few_members(n_points, min(most, 6), dice)
    owner = members.owner
    count = members.n_clusters
    thickness = dice.log_uniform(0.15, 0.6, count)
    gap = dice.number(0.05, 0.3)
    start = (thickness + gap * thickness.mean()).cumsum(0)
    middle = torch.stack((dice.uniform(-0.2, 0.2, count), start - thickness / 2), dim=1)[owner]
    inside = (
        dice.uniform(-1, 1, n_points, 2) * torch.stack((dice.uniform(0.7, 1.2, count), thickness / 2), dim=1)[owner]
    )
    return Scene(members, middle, inside)


def wings(n_points: int, _: int, __: int, dice: Dice) -> Scene:
    """Two plates whose dense sides face each other's, shifted."""
    members = few_members(n_points, 2, dice)
    owner = members.owner
    side = 2.0 * owner - 1
    inside = dice.uniform(0, 1, n_points, 2)
    inside[:, 0] = inside[:, 0] ** dice.number(1.2, 2.5)  # dense at the edge that is shared
    gap, shift = dice.number(0.03, 0.2), dice.number(0.2, 0.7)
    places = torch.stack((side * (gap + 0.5), side * shift), dim=1)
    fuzz = torch.stack((side * (inside[:, 0] - 0.5), 2 * inside[:, 1] - 1), dim=1)
    return Scene(members, places, fuzz)


def flame(n_points: int, _: int, __: int, dice: Dice) -> Scene:
    """A round cluster that rests in a bowl."""
    members = few_members(n_points, 2, dice)
    owner = members.owner
    angle = math.pi * (1.5 + dice.number(0.3, 0.55) * dice.uniform(-1, 1, n_points))
    bowl = torch.stack((angle.cos(), angle.sin()), dim=1)
    middle = torch.tensor([0.0, dice.number(-0.15, 0.3)])
    disc = torch.nn.functional.normalize(dice.normal(n_points, 2), dim=1) * dice.uniform(0, 1, n_points, 1).sqrt()
    thick = dice.number(0.08, 0.2) * torch.tensor([1.0, 0.8]) * dice.normal(n_points, 2).clamp(-2, 2)
    in_bowl = (owner == 0).unsqueeze(1)
    return Scene(
        members, torch.where(in_bowl, bowl, middle), torch.where(in_bowl, thick, dice.number(0.45, 0.65) * disc)
    )


EDGES: Final[Mapping[str, SceneMaker]] = MappingProxyType(
    {"tiles": tiles, "slices": slices, "stripes": stripes, "wings": wings, "flame": flame}
)
"""Scenes of clusters with a common edge or corner, by name."""


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
