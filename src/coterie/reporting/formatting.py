"""Numbers, percentages, names and colours as the page shows them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def format_number(value: float) -> str:
    """Format a number with four significant digits and thousands separators; NaN is "missing"."""
    if not math.isfinite(value):
        return "missing" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if size and (size >= 1e9 or size < 1e-4):
        text = f"{value:.2e}"
    elif size >= 1000 or value == round(value):
        text = f"{value:,.0f}"
    else:
        decimals = 3 - math.floor(math.log10(size))
        text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def format_percent(fraction: float) -> str:
    """Format a fraction as a percentage; only exact 0 and 1 become 0% and 100%."""
    if not math.isfinite(fraction):
        return "–"
    fraction = max(0.0, fraction)  # rounding errors would give -0%
    if 0 < fraction < 0.01:
        return "<1%"
    if 0.99 < fraction < 1:
        return ">99%"
    return f"{100 * fraction:.0f}%"


def format_decimals(value: float, decimals: int = 2) -> str:
    """Format a score with a fixed number of decimals and a true minus."""
    text = f"{value:,.{decimals}f}"
    return (text if text.strip("-0.,") else text.lstrip("-")).replace("-", "−")


def visible_text(text: str) -> str:
    """Remove the invisible characters of a text that turn the direction of what follows."""
    return _DIRECTIONS.sub("", text)


def plural(n: int, noun: str) -> str:
    """Return "1 row", "2 rows", "12,345 rows"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def shorten(text: str, length: int = 32) -> str:
    """Cut a long text: between words if it has any, else in the middle, because names differ at both ends."""
    if len(text) <= length:
        return text
    whole_words = text[:length].rpartition(" ")[0].rstrip(" ,;:(-")
    if len(whole_words) > length // 2:
        return f"{whole_words}…"
    head = (length - 1) * 2 // 3
    return f"{text[:head].rstrip()}…{text[-(length - 1 - head) :].lstrip()}"


def short_names(names: Sequence[str], length: int = 28) -> dict[str, str]:
    """Shorten names so that they stay distinct: names that would look alike lose their common parts."""
    short = {name: shorten(name, length) for name in names}
    alike: dict[str, list[str]] = {}
    for name, text in short.items():
        alike.setdefault(text, []).append(name)
    for group in alike.values():
        if len(group) > 1:
            start = max(_common_prefix(group) - length // 3, 0)
            end = _common_prefix([name[::-1] for name in group])
            short |= {name: f"…{shorten(name[start : len(name) - end], length)}…" for name in group}
    return short


def _common_prefix(texts: Sequence[str]) -> int:
    pairs = zip(min(texts), max(texts), strict=False)  # the first and the last in alphabetical order differ first
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(map(len, texts)))


def name_parts(text: str) -> list[str]:
    """Split a name where a line may break: after underscores, slashes and dots."""
    return re.findall(r"[^_/.]*[_/.]+|[^_/.]+", text)


def enumeration(parts: Sequence[str]) -> str:
    """Join words: "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


# Lightness, chroma and hue (OKLCH). Neighbours in the list differ in lightness as well as in hue, so that
# colour-blind readers can distinguish them.
_PALETTE = (
    (0.53, 0.125, 250.0),  # blue
    (0.74, 0.150, 70.0),  # orange
    (0.60, 0.120, 165.0),  # green
    (0.58, 0.190, 35.0),  # vermilion
    (0.70, 0.110, 345.0),  # pink
    (0.74, 0.110, 225.0),  # sky
    (0.44, 0.120, 295.0),  # indigo
    (0.68, 0.130, 110.0),  # olive
    (0.46, 0.130, 5.0),  # wine
    (0.72, 0.090, 190.0),  # teal
    (0.48, 0.075, 75.0),  # brown
    (0.64, 0.140, 305.0),  # violet
)
_GOLDEN_ANGLE = 137.508
_GOLDEN_RATIO, _SILVER_RATIO = 0.618034, 0.414214
_TIERS = ((0.58, 0.12), (0.72, 0.10), (0.46, 0.10))


@dataclass(frozen=True)
class Colour:
    """Hexadecimal colour of a cluster on a light and on a dark background."""

    light: str
    dark: str


def cluster_colours(n: int) -> list[Colour]:
    """Return `n` colours: a palette of twelve, then hues at steps of the golden angle."""
    tiers = [_TIERS[i % len(_TIERS)] for i in range(n)]
    further = [(*tiers[i], (20.0 + _GOLDEN_ANGLE * i) % 360.0) for i in range(len(_PALETTE), n)]
    # A dark background needs a brighter, narrower range of lightness; its order stays the same.
    return [
        Colour(_hex(lightness, chroma, hue), _hex(0.60 + 0.62 * (lightness - 0.44), chroma, hue))
        for lightness, chroma, hue in [*_PALETTE, *further][:n]
    ]


def grouped_colours(groups: Sequence[Sequence[int]]) -> list[Colour]:
    """Return a colour for each of the clusters 0 to n - 1: each group has a hue, in which its clusters vary."""
    colours: dict[int, Colour] = {}
    for number, clusters in enumerate(groups):
        _, chroma, hue = _PALETTE[number % len(_PALETTE)]
        for i, cluster in enumerate(clusters):
            at = (i * _GOLDEN_RATIO + 0.5) % 1.0  # spread evenly, however many there are
            lightness = 0.44 + 0.34 * at
            turned = (hue + 16.0 * ((i * _SILVER_RATIO) % 1.0 - 0.5)) % 360.0
            dark = 0.60 + 0.62 * (lightness - 0.44)
            colours[cluster] = Colour(_hex(lightness, chroma, turned), _hex(dark, chroma, turned))
    return [colours[cluster] for cluster in sorted(colours)]


def _hex(lightness: float, chroma: float, hue: float) -> str:
    """Convert OKLCH to the nearest sRGB code (Ottosson 2020)."""
    a, b = chroma * np.cos(np.radians(hue)), chroma * np.sin(np.radians(hue))
    to_lms = np.array(
        [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip(to_rgb @ (to_lms @ np.array([lightness, a, b])) ** 3, 0, 1)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = np.rint(255 * srgb).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"
