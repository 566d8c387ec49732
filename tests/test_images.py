"""ImageResizer: images of any size and brightness become the input of a network."""

from typing import Any

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.images import ImageResizer, resize_labelled_images
from coterie.tables.table import Table, as_table


def dots(n: int = 4, side: int = 8) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return images that are bright in the middle and dark at the border."""
    images = np.zeros((n, side, side), dtype=np.uint8)
    images[:, 2:-2, 2:-2] = 200
    return images


@pytest.mark.parametrize(
    ("X", "notes"),
    [
        (dots(), []),
        (dots() / 255, []),
        (dots().astype(np.uint16) * 257, []),
        (dots()[..., None].repeat(3, axis=3), ["grey"]),
        (255 - dots(), ["inverted"]),
        (dots(side=8).repeat(2, axis=1).repeat(2, axis=2), ["resized from 16x16 to 8x8"]),
        (dots().reshape(4, 64), []),
    ],
)
def test_equal_images_give_equal_inputs(X: Any, notes: list[str]) -> None:
    table = as_table(X)
    resizer, found = ImageResizer.fit(table, (1, 8, 8))
    assert len(found) == len(notes)
    assert all(words in note for words, note in zip(notes, found, strict=True))
    expected = (dots() / 255).reshape(4, 64)
    if "resized" not in "".join(notes):
        np.testing.assert_allclose(resizer(table).numpy(), expected, atol=1e-6)
    assert abs(resizer(table).numpy() - expected).mean() < 0.06
    assert ImageResizer.from_card(resizer.to_card()) == resizer


def test_grey_images_are_repeated_for_networks_of_colour_images() -> None:
    resizer, _ = ImageResizer.fit(as_table(dots()), (3, 8, 8))
    channels = resizer(as_table(dots())).reshape(4, 3, 64)
    assert (channels == channels[:, :1]).all()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (as_table(np.ones((3, 5))), "table of 5 columns"),
        (as_table(dots(side=9)), r"images of 9x9 with 1 channels.*fitted on images of 8x8"),
        (as_table(-1.0 * dots()), "value -200"),
        (as_table(np.full((2, 8, 8), np.nan)), "finite numbers"),
        (Table(("a",) * 64, tuple(np.ones((64, 2)))), "finite numbers"),
    ],
)
def test_invalid_images_raise_an_error(table: Table, message: str) -> None:
    resizer, _ = ImageResizer.fit(as_table(dots()), (1, 8, 8))
    with pytest.raises(InputError, match=message):
        resizer(table)


def test_labelled_images_are_resized_to_bytes() -> None:
    images, labels = resize_labelled_images([as_table(dots(2)), as_table(dots(3, side=12))], (1, 8, 8))
    assert images.shape == (5, 1, 8, 8)
    assert labels.tolist() == [0, 0, 1, 1, 1]
    assert int(images.max()) == 200
