"""Geometric sets: clusters of many shapes and layouts, mostly in the plane."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, pad

from coterie.judged.prior.sampling import (
    CROSSING,
    INTERLEAVED,
    PEAKED,
    SIZE_STYLES,
    STANDARD,
    UNIFORM,
    Description,
    Difficulty,
    Draft,
    Memberships,
    Rng,
    assign_few_clusters,
    assign_points,
    limit_clusters,
    sample_proportions,
    standardise,
)
from coterie.judged.prior.shapes import (
    CURVES,
    FLATS,
    SOLIDS,
    by_name,
    columns,
    directions,
    polar,
    sample_curve_parameter,
    thick_curve,
)

N_TRIALS: Final = 16  # positions tried for each cluster
RADIUS_STYLES: Final = {"equal": 0.35, "varied": 0.4, "contrast": 0.25}  # distributions of radii, with their weights


def sample_radii(n_clusters: int, rng: Rng) -> tuple[Float[Tensor, " K"], str]:
    """Sample cluster radii; return them and the name of their distribution."""
    style = rng.choice(RADIUS_STYLES)
    if style == "equal":
        return torch.ones(n_clusters), style
    if style == "varied":
        return rng.log_uniform(0.5, 1.6, n_clusters), style
    large = rng.uniform(0, 1, n_clusters) < rng.scalar(0.1, 0.5)
    large[0] = True
    return torch.where(large, rng.log_scalar(2.5, 8.0), 1.0), style


def place_clusters(
    radii: Float[Tensor, " K"], n_features: int, gaps: Float[Tensor, " K"], rng: Rng
) -> Float[Tensor, "K D"]:
    """Place clusters one by one next to earlier ones, at a relative distance; at distance 1 two clusters touch."""
    count = len(radii)
    centres = torch.zeros(count, n_features)
    direction = normalize(rng.normal(count, N_TRIALS, n_features), dim=2)
    fraction = rng.uniform(0, 1, count, N_TRIALS)
    for index in range(1, count):
        anchor = (fraction[index] * index).long()
        distance = gaps[index] * (radii[anchor] + radii[index])
        trials = centres[anchor] + direction[index] * distance.unsqueeze(1)
        apart = torch.cdist(trials, centres[:index]) / (radii[:index] + radii[index])
        free = apart.amin(dim=1).clamp(max=float(gaps[index]))
        # Among positions that are equally free, prefer the one closest to the first cluster.
        best = (free - 1e-3 * trials.norm(dim=1) / distance.amax()).argmax()
        centres[index] = trials[best]
    return centres


def scattered(radii: Float[Tensor, " K"], n_features: int, rng: Rng) -> Float[Tensor, "K D"]:
    """Separate clusters at different distances."""
    return place_clusters(radii, n_features, rng.scalar(1.1, 1.6) * rng.log_uniform(1, 2.5, len(radii)), rng)


def packed(radii: Float[Tensor, " K"], n_features: int, rng: Rng) -> Float[Tensor, "K D"]:
    """Clusters side by side, touching or nearly touching."""
    return place_clusters(radii, n_features, torch.full((len(radii),), rng.scalar(0.75, 1.15)), rng)


def grid(radii: Float[Tensor, " K"], n_features: int, rng: Rng) -> Float[Tensor, "K D"]:
    """Clusters on a square or hexagonal grid, a circle or a line, with jitter."""
    count, pitch = len(radii), 2 * float(radii.max()) * rng.scalar(0.8, 1.6)
    form = rng.choice({"square": 0.5, "hexagonal": 0.25, "circle": 0.15, "line": 0.1})
    index = torch.arange(count)
    if form == "circle":
        flat = polar(1.0, 2 * math.pi * index / count) / (2 * math.sin(math.pi / count))
    else:
        per_row = count if form == "line" else max(2, math.ceil(math.sqrt(count) * rng.scalar(0.8, 1.25)))
        row, column = torch.div(index, per_row, rounding_mode="floor"), index % per_row
        shift = 0.5 * (row % 2) if form == "hexagonal" else 0.0
        flat = columns(column + shift, row * (math.sqrt(0.75) if form == "hexagonal" else 1.0))
    centres = torch.zeros(count, n_features)
    centres[:, : min(n_features, 2)] = pitch * flat[:, : min(n_features, 2)]
    if n_features == 1:
        centres[:, 0] = pitch * index
    if n_features > 2 and form == "square":
        corner = max(2, math.ceil(count ** (1 / 3)))
        powers = torch.tensor([1, corner, corner**2])
        centres[:, :3] = pitch * (torch.div(index.unsqueeze(1), powers, rounding_mode="floor") % corner)
        centres[:, 2] = pitch * torch.div(index, corner**2, rounding_mode="floor")
    return centres + pitch * rng.scalar(0, 0.15) * rng.normal(count, n_features)


def grouped(radii: Float[Tensor, " K"], n_features: int, rng: Rng) -> Float[Tensor, "K D"]:
    """Groups of clusters: close within a group, far between groups."""
    count = len(radii)
    n_groups = max(2, min(6, round(count / rng.scalar(2.0, 4.0))))
    group = torch.arange(count) % n_groups
    centres = torch.zeros(count, n_features)
    gap = rng.scalar(0.85, 1.4)
    extent = torch.zeros(n_groups)
    for one in range(n_groups):
        inside = group == one
        placed = place_clusters(radii[inside], n_features, torch.full((int(inside.sum()),), gap), rng)
        placed = placed - placed.mean(dim=0)
        extent[one] = float((placed.norm(dim=1) + radii[inside]).max())
        centres[inside] = placed
    return centres + place_clusters(extent, n_features, gap * rng.log_uniform(1.3, 2.5, n_groups), rng)[group]


CENTRE_LAYOUTS: Final = by_name(scattered, packed, grid, grouped)
"""Layouts of clusters that each have a shape of their own."""


@final
@dataclass(frozen=True, slots=True)
class Arrangement:
    """Clusters that are sampled together: each point is its location plus a multiple of its deviation."""

    members: Memberships
    location: Float[Tensor, "N E"]  # in two or three features
    deviation: Float[Tensor, "N E"]
    difficulty: Difficulty = INTERLEAVED


def _noise(members: Memberships, n_features: int, rng: Rng, low: float = 0.02, high: float = 0.1) -> Tensor:
    return members.uniform(low, high, rng).unsqueeze(1) * rng.normal(members.n_points, n_features)


def moons(n_points: int, _: int, __: int, rng: Rng) -> Arrangement:
    """Two interleaved half circles."""
    members = assign_few_clusters(n_points, 2, rng)
    angle = 0.5 * math.pi * (1 + sample_curve_parameter(members, rng)) * rng.scalar(0.8, 1.15)
    second = members.labels == 1
    angle = torch.where(second, angle + math.pi, angle)
    location = polar(torch.where(second, rng.scalar(0.7, 1.2), 1.0), angle)
    offset = torch.tensor([rng.scalar(0.7, 1.2), rng.scalar(-0.1, 0.6)])
    return Arrangement(members, location + second.unsqueeze(1) * offset, _noise(members, 2, rng))


def spirals(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Two to four intertwined spirals."""
    members = assign_few_clusters(n_points, min(max_clusters, 4), rng)
    along = (0.5 + 0.5 * sample_curve_parameter(members, rng)).sqrt()
    # Points along an arm must be closer than arms are to each other, which limits the revolutions of small sets.
    revolutions = rng.scalar(0.4, max(0.5, min(2.0, 0.25 * math.sqrt(n_points) / members.n_clusters)))
    angle = 2 * math.pi * (revolutions * along + members.labels / members.n_clusters)
    return Arrangement(members, polar(0.1 + 0.9 * along, angle), _noise(members, 2, rng, 0.01, 0.05))


def parallel(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Copies of one curve, side by side."""
    members = replace(assign_few_clusters(n_points, min(max_clusters, 6), rng), shared=True)
    name = rng.choice({"line": 1, "wave": 1, "parabola": 1, "zigzag": 1, "arc": 1, "worm": 1})
    location = CURVES[name](members, sample_curve_parameter(members, rng), rng)
    aside = rng.scalar(0.25, 0.6) * members.labels + rng.uniform(-0.05, 0.05, members.n_clusters)[members.labels]
    direction = torch.tensor([0.0, 1.0] if name != "arc" else [1.0, 0.0])
    limit = 0.4 if name == "line" else 0.1
    lengthwise = rng.uniform(-limit, limit, members.n_clusters)[members.labels]
    moved = location + aside.unsqueeze(1) * direction + lengthwise.unsqueeze(1) * direction.flip(0)
    return Arrangement(members, moved, _noise(members, 2, rng, 0.02, 0.08))


def rays(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Line segments that start near one point, in different directions."""
    members = assign_few_clusters(n_points, min(max_clusters, 7), rng)
    along = rng.scalar(0.0, 0.3) + rng.uniform(0, 1, n_points)
    angle = 2 * math.pi * (members.labels / members.n_clusters) + 0.3 * rng.normal(members.n_clusters)[members.labels]
    return Arrangement(members, polar(along, angle), _noise(members, 2, rng, 0.02, 0.08))


def crossing(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Curves that intersect."""
    members = assign_few_clusters(n_points, min(max_clusters, 4), rng)
    name = rng.choice({"line": 2, "wave": 1, "worm": 1, "arc": 1})
    location = CURVES[name](members, sample_curve_parameter(members, rng), rng)
    angle = math.pi * (torch.arange(members.n_clusters) + rng.uniform(-0.2, 0.2, members.n_clusters))
    angle = (angle / members.n_clusters)[members.labels]
    rotation = torch.stack((polar(1.0, angle), polar(1.0, angle + math.pi / 2)), dim=1)
    shift = 0.3 * rng.normal(members.n_clusters, 2)[members.labels]
    location = torch.einsum("ne,nef->nf", location, rotation) + shift
    return Arrangement(members, location, _noise(members, 2, rng, 0.01, 0.05), CROSSING)


def rings(n_points: int, max_clusters: int, n_features: int, rng: Rng) -> Arrangement:
    """Concentric circles or spheres, often with a filled core."""
    n_clusters = rng.integer(2, limit_clusters(n_points, min(max_clusters, 4), 20))
    radii = rng.uniform(0.5, 1.2, n_clusters)
    has_core = rng.bernoulli(0.7)
    radii[0] = 0.0 if has_core else radii[0]
    radii = radii.cumsum(0)
    proportions = radii + 0.4 if rng.bernoulli(0.6) else sample_proportions(n_clusters, rng)[0]
    members = assign_points(n_points, proportions / proportions.sum(), rng)
    if n_features > 2 and rng.bernoulli(0.6):
        direction = directions(n_points, 3, rng)
    else:
        direction = polar(1.0, math.pi * sample_curve_parameter(members, rng))
    deviation = _noise(members, direction.shape[1], rng, 0.02, 0.1)
    core = has_core * (members.labels == 0).unsqueeze(1) * rng.scalar(0.5, 3)
    return Arrangement(members, members.per_point(radii).unsqueeze(1) * direction, deviation * (1 + core))


def enclosed(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Clusters inside a large ring, arc or frame."""
    members = assign_few_clusters(n_points, min(max_clusters, 6), rng)
    outline = polar(1.0, math.pi * rng.scalar(0.6, 1.0) * sample_curve_parameter(members, rng))
    if rng.bernoulli(0.3):
        outline = outline / outline.abs().amax(dim=1, keepdim=True)
    inside = max(1, members.n_clusters - 1)
    bearing = 2 * math.pi * (torch.arange(members.n_clusters) / inside + rng.scalar(0, 1))
    away = rng.uniform(0.35, 0.6, members.n_clusters) if inside > 1 else rng.uniform(0, 0.3, members.n_clusters)
    centre = polar(away, bearing)[members.labels]
    first = (members.labels == 0).unsqueeze(1)
    inner = members.uniform(0.05, 0.16, rng).unsqueeze(1) * rng.normal(n_points, 2)
    return Arrangement(members, torch.where(first, outline, centre), torch.where(first, _noise(members, 2, rng), inner))


def halos(n_points: int, max_clusters: int, n_features: int, rng: Rng) -> Arrangement:
    """Dense cores, each inside a sparse shell that is another cluster."""
    pairs = 1 if rng.bernoulli(0.6) or max_clusters < 4 or n_points < 100 else 2
    proportions = rng.uniform(0.3, 0.7, 2 * pairs)
    members = assign_points(n_points, proportions / proportions.sum(), rng)
    n_features = 3 if n_features > 2 and rng.bernoulli(0.8) else 2
    direction = directions(n_points, n_features, rng)
    outer = (members.labels % 2 == 1).unsqueeze(1)
    inner_edge, outer_edge = rng.scalar(0.2, 0.8), rng.scalar(0.9, 1.4)
    radius = rng.uniform(inner_edge, outer_edge, n_points, 1)
    location = torch.zeros(n_points, n_features)
    location[:, 0] = 2.4 * outer_edge * torch.div(members.labels, 2, rounding_mode="floor")
    core = rng.scalar(0.02, 0.25) * rng.normal(n_points, n_features)
    return Arrangement(members, location + outer * radius * direction, torch.where(outer, 0.05 * core, core))


def links(n_points: int, max_clusters: int, n_features: int, rng: Rng) -> Arrangement:
    """Rings linked like a chain in three features, or crossing in the plane."""
    members = assign_few_clusters(n_points, min(max_clusters, 4), rng)
    ring = polar(1.0, math.pi * sample_curve_parameter(members, rng))
    along = rng.scalar(0.9, 1.3) * members.labels
    if n_features > 2:
        even = members.labels % 2 == 0
        second = torch.where(even, ring[:, 1], 0.0)
        location = torch.stack((ring[:, 0] + along, second, torch.where(even, 0.0, ring[:, 1])), dim=1)
    else:
        location = columns(ring[:, 0] + 1.3 * along, ring[:, 1] + 0.7 * (members.labels % 2))
    difficulty = INTERLEAVED if n_features > 2 else CROSSING
    return Arrangement(members, location, _noise(members, location.shape[1], rng, 0.02, 0.12), difficulty)


def tiles(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Squares that share corners or edges."""
    members = assign_few_clusters(n_points, min(max_clusters, 6), rng)
    labels = members.labels
    inside = rng.uniform(-1, 1, n_points, 2)
    per_row = rng.integer(2, 3)
    tile = columns(labels % per_row, torch.div(labels, per_row, rounding_mode="floor")).float()
    if rng.bernoulli(0.5):  # corner to corner, as on a chessboard
        tile = columns(labels, labels % 2 if rng.bernoulli(0.5) else labels).float()
    if rng.bernoulli(0.3):
        inside = inside.sign() * inside.abs() ** 1.5  # denser in the middle
    return Arrangement(members, 2 * tile * rng.scalar(1.03, 1.25), inside)


def slices(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """A disc cut into sectors that are moved apart."""
    members = assign_few_clusters(n_points, min(max_clusters, 6), rng)
    labels, count = members.labels, members.n_clusters
    middle = 2 * math.pi * labels / count
    angle = middle + (math.pi / count) * rng.uniform(-1, 1, n_points)
    radius = rng.uniform(0, 1, n_points).sqrt()
    apart = polar(1.0, middle) * rng.scalar(0.06, 0.3)
    outwards = polar(1.0, middle) * (0.6 if count > 2 else 0.42)
    return Arrangement(members, apart + outwards, polar(radius, angle) - outwards)


def stripes(n_points: int, max_clusters: int, _: int, rng: Rng) -> Arrangement:
    """Parallel bands of different length, thickness and density."""
    members = assign_few_clusters(n_points, min(max_clusters, 6), rng)
    labels, count = members.labels, members.n_clusters
    thickness = rng.log_uniform(0.15, 0.6, count)
    gap = rng.scalar(0.05, 0.3)
    start = (thickness + gap * thickness.mean()).cumsum(0)
    middle = columns(rng.uniform(-0.2, 0.2, count), start - thickness / 2)[labels]
    inside = rng.uniform(-1, 1, n_points, 2) * columns(rng.uniform(0.7, 1.2, count), thickness / 2)[labels]
    return Arrangement(members, middle, inside)


def wings(n_points: int, _: int, __: int, rng: Rng) -> Arrangement:
    """Two shifted rectangles whose dense edges face each other."""
    members = assign_few_clusters(n_points, 2, rng)
    side = 2.0 * members.labels - 1
    inside = rng.uniform(0, 1, n_points, 2)
    inside[:, 0] = inside[:, 0] ** rng.scalar(1.2, 2.5)  # dense at the common edge
    gap, shift = rng.scalar(0.03, 0.2), rng.scalar(0.2, 0.7)
    location = columns(side * (gap + 0.5), side * shift)
    return Arrangement(members, location, columns(side * (inside[:, 0] - 0.5), 2 * inside[:, 1] - 1))


def flame(n_points: int, _: int, __: int, rng: Rng) -> Arrangement:
    """A disc above an arc."""
    members = assign_few_clusters(n_points, 2, rng)
    bowl = polar(1.0, math.pi * (1.5 + rng.scalar(0.3, 0.55) * rng.uniform(-1, 1, n_points)))
    middle = torch.tensor([0.0, rng.scalar(-0.15, 0.3)])
    disc = directions(n_points, 2, rng) * rng.uniform(0, 1, n_points, 1).sqrt()
    thick = rng.scalar(0.08, 0.2) * torch.tensor([1.0, 0.8]) * rng.normal(n_points, 2).clamp(-2, 2)
    in_bowl = (members.labels == 0).unsqueeze(1)
    deviation = torch.where(in_bowl, thick, rng.scalar(0.45, 0.65) * disc)
    return Arrangement(members, torch.where(in_bowl, bowl, middle), deviation)


ARRANGEMENTS: Final = by_name(
    moons, spirals, parallel, rays, crossing, rings, enclosed, halos, links, tiles, slices, stripes, wings, flame
)
ADJACENT: Final = ("tiles", "slices", "stripes", "wings", "flame")
"""Arrangements of clusters with a common edge or corner."""
LAYOUT_WEIGHTS: Final = (
    {"scattered": 4.0, "packed": 3.5, "grid": 3.5, "grouped": 2.0}
    | dict.fromkeys(ARRANGEMENTS, 1.0)
    | dict.fromkeys(ADJACENT, 0.7)
    | {"links": 0.3}
)
"""Layouts and arrangements, with their weights in the plane."""
SPATIAL: Final = frozenset({"rings", "halos", "links"})  # arrangements with a version in three features
SOLID_WEIGHTS: Final = (
    dict.fromkeys(SOLIDS, 1.0) | {"ball-gaussian": 4.0, "gaussian": 5.0, "ball": 2.0} | {"shell": 0.7, "peaked": 0.7}
)
PEAKED_SHAPES: Final = frozenset({"ball-gaussian", "gaussian", "student", "peaked", "skewed"})
"""Shapes that are densest in the centre."""
SHAPE_WEIGHTS: Final = SOLID_WEIGHTS | dict.fromkeys(FLATS, 0.9) | dict.fromkeys(CURVES, 0.8)


def sample_geometric(n_points: int, n_features: int, max_clusters: int, rng: Rng) -> Draft:
    """Sample a geometric set."""
    layout = rng.choice(
        {name: 2.0 if n_features > 2 and name in SPATIAL else weight for name, weight in LAYOUT_WEIGHTS.items()}
    )
    if layout in CENTRE_LAYOUTS:
        n_clusters = _sample_n_clusters(layout, n_points, max_clusters, rng)
        draft = _separate_shapes(layout, n_points, n_features, n_clusters, rng)
    else:
        draft = _arrangement(layout, n_points, n_features, max_clusters, rng)
    warped = rng.bernoulli(0.12)
    transform = _sample_transform(n_features, rng, warped=warped)
    description = {"layout": layout, "warped": "yes" if warped else "no", **draft.description}
    return Draft(draft.labels, lambda spread: transform(draft.build(spread)), draft.difficulty, description)


BLOB_COUNTS: Final = {"few": (2, 6), "some": (5, 15), "many": (15, 50)}
"""Numbers of clusters of blobs, from and to."""


def sample_blobs(n_points: int, n_features: int, max_clusters: int, rng: Rng) -> Draft:
    """Sample Gaussian clusters in any number of columns, from touching to far apart, which people try first."""
    low, high = BLOB_COUNTS[rng.choice({"few": 0.55, "some": 0.25, "many": 0.2})]
    n_clusters = min(rng.integer(low, high), limit_clusters(n_points, max_clusters, 14))
    return _gaussians(n_points, n_features, n_clusters, rng)


def sample_many_clusters(n_points: int, n_features: int, max_clusters: int, rng: Rng) -> Draft:
    """Sample from 40 clusters to as many as leave five points for each: Gaussians, or shapes on a grid or apart."""
    limit = limit_clusters(n_points, max_clusters, 5)
    n_clusters = min(int(rng.log_scalar(40, max(limit, 40) + 1)), limit)
    if n_features > 3 or rng.bernoulli(0.5):
        return _gaussians(n_points, n_features, n_clusters, rng)
    layout = rng.choice({"grid": 0.5, **dict.fromkeys(sorted(CENTRE_LAYOUTS.keys() - {"grid", "grouped"}), 0.5)})
    draft = _separate_shapes(layout, n_points, n_features, n_clusters, rng)
    return replace(draft, description={"layout": layout, **draft.description})


def _gaussians(n_points: int, n_features: int, n_clusters: int, rng: Rng) -> Draft:
    """Sample Gaussian clusters around random centres."""
    proportions, sizes = sample_proportions(n_clusters, rng)
    members = assign_points(n_points, proportions, rng)
    centres = rng.uniform(-1, 1, n_clusters, n_features) if rng.bernoulli(0.5) else rng.normal(n_clusters, n_features)
    shape = rng.choice({"round": 0.5, "varied": 0.25, "long": 0.25})
    deviations = rng.normal(n_points, n_features) * 0.3
    if shape == "varied":
        deviations = deviations * members.per_point(rng.log_uniform(0.4, 2.5, n_clusters, 1))
    elif shape == "long":
        mixing = rng.orthogonal(n_clusters, n_features) * rng.log_uniform(0.3, 2.0, n_clusters, n_features, 1)
        deviations = torch.einsum("nd,nde->ne", deviations, members.per_point(mixing))
    location = members.per_point(centres)
    scale, offset = rng.log_scalar(0.1, 100.0) * rng.log_uniform(0.5, 2.0, n_features), 3 * rng.normal(n_features)
    description: Description = {"layout": "blobs", "shapes": shape, "sizes": sizes}
    return Draft(
        members.labels, lambda spread: (location + spread * deviations + offset) * scale, STANDARD, description
    )


def _separate_shapes(layout: str, n_points: int, n_features: int, n_clusters: int, rng: Rng) -> Draft:
    """Sample separate clusters of one or several shapes."""
    kinds = _sample_kinds(layout, n_clusters, rng)
    radii, extents = (torch.ones(n_clusters), "equal") if layout == "grid" else sample_radii(n_clusters, rng)
    if extents != "equal" and rng.bernoulli(0.4):
        area = radii ** min(n_features, 2)
        proportions, sizes = area / area.sum(), "by area"
    else:
        styles = {"even": 0.8, "uneven": 0.2} if layout == "grid" else SIZE_STYLES
        proportions, sizes = sample_proportions(n_clusters, rng, styles)
    members = assign_points(n_points, proportions, rng, shared=rng.bernoulli(0.7 if layout == "grid" else 0.3))
    shapes = _sample_shapes(kinds, members, n_features, rng) * members.per_point(radii).unsqueeze(1)
    centres = CENTRE_LAYOUTS[layout](radii, n_features, rng)
    location = members.per_point(centres)
    bridged = layout != "grid" and rng.bernoulli(0.1)
    if bridged:
        location, shapes = _bridge(members, centres, location, shapes, rng)
    description: Description = {"shapes": ", ".join(sorted(set(kinds))), "extents": extents, "sizes": sizes}
    description["bridges"] = "yes" if bridged else "no"
    difficulty = PEAKED if PEAKED_SHAPES.issuperset(kinds) else UNIFORM
    return Draft(members.labels, lambda spread: location + spread * shapes, difficulty, description)


def _bridge(
    members: Memberships, centres: Float[Tensor, "K D"], location: Tensor, shapes: Tensor, rng: Rng
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """Move some points onto thin bridges between a cluster and its nearest neighbour."""
    apart = torch.cdist(centres, centres).fill_diagonal_(torch.inf)
    towards = members.per_point(centres[apart.argmin(dim=1)] - centres)
    building = members.per_point(rng.uniform(0, 1, members.n_clusters) < 0.6)
    on_bridge = (building & (rng.uniform(0, 1, members.n_points) < rng.scalar(0.02, 0.08))).unsqueeze(1)
    moved = location + rng.uniform(0, 0.5, members.n_points, 1) * towards
    return torch.where(on_bridge, moved, location), torch.where(on_bridge, 0.1 * shapes, shapes)


def _sample_n_clusters(layout: str, n_points: int, max_clusters: int, rng: Rng) -> int:
    limit = limit_clusters(n_points, max_clusters, 8 if layout == "grid" else 14)
    if layout == "grid":
        low, high = (9, 50) if rng.bernoulli(0.75) else (3, 9)
    elif layout == "grouped":
        low, high = 4, 16
    else:
        low, high = (2, 7) if rng.bernoulli(0.75) else (6, 50)
    return rng.integer(min(low, limit), min(high, limit))


def _sample_kinds(layout: str, n_clusters: int, rng: Rng) -> list[str]:
    """Sample the shape of each cluster: mostly one or two kinds in a set, sometimes many."""
    weights = SOLID_WEIGHTS if layout == "grid" and rng.bernoulli(0.8) else SHAPE_WEIGHTS
    if rng.bernoulli(0.35):
        weights = {kind: weight for kind, weight in SOLID_WEIGHTS.items() if kind in PEAKED_SHAPES}
    number = 1 if layout == "grid" else int(rng.choice({"1": 0.5, "2": 0.25, "3": 0.1, "9": 0.15}))
    palette = [rng.choice(weights) for _ in range(number)]
    return [palette[rng.integer(0, number - 1)] for _ in range(n_clusters)]


def _sample_shapes(kinds: list[str], members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Sample the shapes of all clusters around the origin, each randomly rotated."""
    points = torch.empty(members.n_points, n_features)
    for kind in sorted(set(kinds)):
        chosen = members.per_point(torch.tensor([one == kind for one in kinds]))
        some = Memberships(members.labels[chosen], members.n_clusters, members.shared)
        points[chosen] = _sample_shape(kind, some, n_features, rng)
    if members.shared and rng.bernoulli(0.5):
        return points
    return torch.einsum("nd,nde->ne", points, members.per_point(rng.orthogonal(members.n_distinct, n_features)))


def _sample_shape(kind: str, members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    if kind in SOLIDS:
        return SOLIDS[kind](members, n_features, rng)
    flat = FLATS[kind](members, rng) if kind in FLATS else thick_curve(kind, members, rng)
    return _lift(flat, n_features, rng)


def _lift(flat: Float[Tensor, "N E"], n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Append columns of small noise up to ``n_features``."""
    if flat.shape[1] == n_features:
        return flat
    more = rng.scalar(0.02, 0.1) * rng.normal(len(flat), n_features)
    more[:, : flat.shape[1]] = flat
    return more


def _arrangement(layout: str, n_points: int, n_features: int, max_clusters: int, rng: Rng) -> Draft:
    """Sample clusters that are defined by their joint arrangement."""
    clusters = ARRANGEMENTS[layout](n_points, max_clusters, n_features, rng)
    location = pad(clusters.location, (0, n_features - clusters.location.shape[1]))
    deviation = _lift(clusters.deviation, n_features, rng)
    # Unrotated, a column of lifting noise alone would weigh as much as the others once columns are standardised.
    upright = n_features == clusters.location.shape[1] and rng.bernoulli(0.4)
    rotation = torch.eye(n_features) if upright else rng.orthogonal(1, n_features)[0]
    labels = clusters.members.labels
    return Draft(labels, lambda spread: (location + spread * deviation) @ rotation, clusters.difficulty, {})


def _sample_transform(n_features: int, rng: Rng, *, warped: bool) -> Callable[[Tensor], Tensor]:
    """Sample a transform of the whole set: warp, stretch, scale and shift."""
    first, bias = rng.normal(n_features, 6) * rng.scalar(0.5, 1.2), rng.normal(6)
    second = rng.normal(6, n_features) * rng.scalar(0.2, 0.5)
    stretch = rng.log_uniform(0.4, 2.5, n_features) if rng.bernoulli(0.15) else torch.ones(n_features)
    scale, offset = rng.log_scalar(0.01, 1000.0) * stretch, 3 * rng.normal(n_features)

    def transform(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        if warped:
            level = standardise(x)
            x = level + (level @ first + bias).tanh() @ second
        return (x + offset) * scale

    return transform
