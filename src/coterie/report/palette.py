"""Colours that tell clusters apart, also for colour-blind readers, on light and on dark paper."""

from dataclasses import dataclass

import numpy as np

# Lightness, chroma and hue (OKLCH). Neighbours in the list differ in lightness as well as in hue, so that
# they stay apart where red and green, or blue and purple, look alike.
_BY_HAND = (
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
_TIERS = ((0.58, 0.12), (0.72, 0.10), (0.46, 0.10))


@dataclass(frozen=True)
class Colour:
    """One cluster's colour on light and on dark paper, as hexadecimal codes."""

    light: str
    dark: str


def cluster_colours(n: int) -> list[Colour]:
    """Return `n` colours: twelve chosen by hand, the further ones by turning the hue by the golden angle."""
    return [_pair(*_lightness_chroma_hue(i)) for i in range(n)]


def _lightness_chroma_hue(i: int) -> tuple[float, float, float]:
    if i < len(_BY_HAND):
        return _BY_HAND[i]
    lightness, chroma = _TIERS[i % len(_TIERS)]
    return lightness, chroma, (20.0 + _GOLDEN_ANGLE * i) % 360.0


def _pair(lightness: float, chroma: float, hue: float) -> Colour:
    # On dark paper the same order of lightness is kept within a brighter, narrower range.
    return Colour(_hex(lightness, chroma, hue), _hex(0.60 + 0.62 * (lightness - 0.44), chroma, hue))


def _hex(lightness: float, chroma: float, hue: float) -> str:
    """Convert OKLCH to the nearest sRGB code (Ottosson 2020)."""
    a, b = chroma * np.cos(np.radians(hue)), chroma * np.sin(np.radians(hue))
    to_lms = np.array(
        [
            [1, 0.3963377774, 0.2158037573],
            [1, -0.1055613458, -0.0638541728],
            [1, -0.0894841775, -1.2914855480],
        ]
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
