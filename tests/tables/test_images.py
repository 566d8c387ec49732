"""Reading folders of image files."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from coterie.errors import MissingExtraError, TableError
from coterie.tables.readers import read_table
from coterie.tables.readers.images import read_image_classes, read_images


def save(path: Path, pixels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(path)


def grey(value: int, height: int = 4, width: int = 6) -> NDArray[np.uint8]:
    return np.full((height, width), value, dtype=np.uint8)


def coloured(red: int, green: int, blue: int, height: int = 4, width: int = 6) -> NDArray[np.uint8]:
    return np.broadcast_to(np.array([red, green, blue], dtype=np.uint8), (height, width, 3))


def values(folder: Path, **settings: Any) -> NDArray[Any]:
    """Return the first pixel of each image, with its channels; every image must have a single colour."""
    table = read_images(folder, **settings)
    assert table.block is not None
    assert table.image is not None
    images: NDArray[Any] = table.block.reshape(-1, *table.image)
    assert (np.ptp(images.astype(int), axis=(1, 2)) <= 2).all()
    return images[:, 0, 0]


def test_images_are_in_the_order_of_their_file_names(tmp_path: Path) -> None:
    for name, value in (("b.png", 2), ("a.png", 1), ("c.PNG", 3)):
        save(tmp_path / name, grey(value))
    seen: list[tuple[int, int]] = []
    table = read_images(tmp_path, on_progress=lambda done, count: seen.append((done, count)))
    assert table.image == (4, 6, 1)
    assert table.block is not None
    assert table.block.dtype == np.uint8
    assert table.block[:, 0].tolist() == [1, 2, 3]
    assert table.extra_columns["file"].tolist() == ["a.png", "b.png", "c.PNG"]
    assert "folder" not in table.extra_columns
    assert (table.notes, table.named, table.source) == ((), False, tmp_path.name)
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("ending", ["png", "jpg", "jpeg", "gif", "bmp", "webp", "tif", "tiff"])
def test_every_image_format_is_read(ending: str, tmp_path: Path) -> None:
    save(tmp_path / f"a.{ending}", grey(200))
    save(tmp_path / f"b.{ending}", coloured(200, 40, 40))
    np.testing.assert_allclose(values(tmp_path).astype(int), [[200, 200, 200], [200, 40, 40]], atol=4)


def test_colour_is_kept_only_if_an_image_has_colour(tmp_path: Path) -> None:
    save(tmp_path / "a.png", coloured(9, 9, 9))
    save(tmp_path / "b.png", coloured(50, 52, 50))
    save(tmp_path / "c.png", grey(70))
    table = read_images(tmp_path)
    assert table.image == (4, 6, 1)
    (note,) = table.notes
    assert note == "2 of 3 images are stored in colour and were converted to grey, since none shows any colour"
    assert values(tmp_path, channels=3)[2].tolist() == [70, 70, 70]
    save(tmp_path / "d.png", coloured(50, 90, 50))
    assert read_images(tmp_path).image == (4, 6, 3)
    made_grey = read_images(tmp_path, channels=1)
    assert made_grey.image == (4, 6, 1)
    assert "converted to grey, as requested" in made_grey.notes[0]


def test_images_are_resized_to_the_most_common_size(tmp_path: Path) -> None:
    for i, shape in enumerate([(8, 5), (4, 6), (4, 6), (12, 12)]):
        save(tmp_path / f"{i}.png", grey(i, *shape))
    table = read_images(tmp_path)
    assert table.image == (4, 6, 1)
    assert table.notes == ("2 of 4 images had 2 other sizes (height x width) and were resized to 4x6",)
    assert values(tmp_path, size=(3, 2)).ravel().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "shape"),
    [((128, 64), (64, 32, 1)), ((640, 480), (64, 48, 1)), ((64, 64), (64, 64, 1)), ((1, 6400), (1, 64, 1))],
)
def test_large_images_are_reduced(given: tuple[int, int], shape: tuple[int, int, int], tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(7, *given))
    save(tmp_path / "b.jpg", grey(9, *given))
    assert read_images(tmp_path).image == shape
    assert values(tmp_path).ravel().tolist() == [7, 9]


def test_reducing_averages_pixels(tmp_path: Path) -> None:
    stripes = np.zeros((128, 128))
    stripes[:, ::2] = 200
    save(tmp_path / "a.png", stripes)
    block = read_images(tmp_path, size=(16, 16)).block
    assert block is not None
    np.testing.assert_allclose(block, 100, atol=12)


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    save(tmp_path / "a.png", np.broadcast_to([200, 0, 0, 0], (4, 6, 4)))
    save(tmp_path / "b.png", np.broadcast_to([200, 0, 0, 255], (4, 6, 4)))
    palette = Image.new("P", (6, 4), 0)
    palette.putpalette([10, 20, 30])
    palette.save(tmp_path / "c.gif", transparency=0)
    Image.fromarray(np.dstack([grey(50), grey(0)])).save(tmp_path / "d.png")
    assert values(tmp_path).tolist() == [[255, 255, 255], [200, 0, 0], [255, 255, 255], [255, 255, 255]]


def test_16_bit_and_binary_images_are_converted(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 6), 51400, dtype=np.uint16)).save(tmp_path / "a.png")
    Image.fromarray(np.full((4, 6), 51400, dtype=np.int32)).save(tmp_path / "b.tif")
    Image.new("1", (6, 4), 1).save(tmp_path / "c.png")
    Image.new("CMYK", (6, 4), (0, 0, 0, 255)).save(tmp_path / "d.jpg")
    assert values(tmp_path, channels=1).ravel().tolist() == [200, 200, 255, 0]


def test_rotated_photos_are_stored_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the image is stored rotated by 90 degrees
    pixels = np.zeros((8, 16), dtype=np.uint8)
    pixels[:, :8] = 250
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=100)
    table = read_images(tmp_path)
    assert (table.image, table.notes) == ((16, 8, 1), ())
    assert table.block is not None
    image = table.block.reshape(16, 8).astype(int)
    assert image[:7].min() > 200
    assert image[9:].max() < 50


def test_sub_folders_are_an_extra_column(tmp_path: Path) -> None:
    for name in ("cats/1.png", "cats/2.png", "dogs/1.png"):
        save(tmp_path / name, grey(5))
    table = read_images(tmp_path)
    assert table.extra_columns["file"].tolist() == ["cats/1.png", "cats/2.png", "dogs/1.png"]
    assert table.extra_columns["folder"].tolist() == ["cats", "cats", "dogs"]
    save(tmp_path / "dogs" / "small" / "3.png", grey(5))
    save(tmp_path / "loose.png", grey(5))
    assert read_images(tmp_path).extra_columns["folder"].tolist() == ["cats", "cats", "dogs", "dogs/small", None]


def test_other_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(5))
    save(tmp_path / ".hidden" / "b.png", grey(6))
    for name in (".DS_Store", "notes.txt", "labels.csv"):
        (tmp_path / name).write_text("no image")
    table = read_table(tmp_path, image_size=(4, 6), image_channels=3)
    assert (table.n_rows, table.image) == (1, (4, 6, 3))
    (note,) = table.notes
    assert note.startswith("ignored")
    assert note.endswith("'labels.csv', 'notes.txt'")
    with pytest.raises(TableError, match=r"'a.png' is a single image. Give the folder"):
        read_table(tmp_path / "a.png")


def test_folders_without_images_and_invalid_parameters_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="There is no folder"):
        read_images(tmp_path / "absent")
    with pytest.raises(TableError, match=r"is a folder without images.*\.png.*It is empty"):
        read_images(tmp_path)
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(TableError, match=r"It contains 'a\.csv'"):
        read_images(tmp_path)
    save(tmp_path / "b.png", grey(1))
    with pytest.raises(TableError, match="0x3"):
        read_images(tmp_path, size=(0, 3))
    with pytest.raises(TableError, match="channels=4 must be one of 1, 3, or None"):
        read_images(tmp_path, channels=4)


@pytest.mark.parametrize("damage", ["garbage", "cut", "empty", "fractions"])
def test_damaged_files_are_named_in_the_error(damage: str, tmp_path: Path) -> None:
    save(tmp_path / "good.png", grey(1))
    bad = tmp_path / "sub" / "bad.png"
    save(bad, np.random.default_rng(0).integers(0, 255, (40, 40)))
    whole = bad.read_bytes()
    if damage == "fractions":
        bad.unlink()
        Image.fromarray(np.zeros((4, 4), dtype=np.float32)).save(tmp_path / "sub" / "bad.tif")
    else:
        bad.write_bytes({"garbage": b"no image", "cut": whole[: len(whole) // 2], "empty": b""}[damage])
    with pytest.raises(TableError, match=r"'(sub/)?bad\.(png|tif)'"):
        read_images(tmp_path)


def test_huge_images_and_missing_pillow_raise_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "bomb.png", grey(1, 40, 40))
    for limit in (1000, 100):  # above which Pillow warns or raises an error
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(TableError, match=r"'bomb\.png'.*pixels"):
            read_images(tmp_path)
    save(tmp_path / "a.png", grey(1))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'coterie\[images\]'"):
        read_images(tmp_path)


def test_classes_are_read_from_sub_folders(tmp_path: Path) -> None:
    for name, value in (("b/2.png", 3), ("a/1.png", 1), ("b/deep/1.png", 4), ("a/x.png", 2)):
        save(tmp_path / name, grey(value))
    found = read_image_classes(tmp_path, size=(2, 2))
    assert (found.images.shape, found.images[:, 0, 0, 0].tolist()) == ((4, 2, 2, 1), [1, 2, 3, 4])
    assert (found.names, found.classes.tolist()) == (("a", "b"), [0, 0, 1, 1])
    assert found.files == ("a/1.png", "a/x.png", "b/2.png", "b/deep/1.png")
    assert "resized to 2x2" in found.notes[0]


def test_images_without_a_class_and_empty_classes_raise_an_error(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.png", grey(1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="without images: 'empty'"):
        read_image_classes(tmp_path)
    save(tmp_path / "loose.png", grey(1))
    with pytest.raises(TableError, match=r"1 of its images are in none: 'loose\.png'"):
        read_image_classes(tmp_path)


def test_a_file_of_another_format_is_not_opened_whatever_it_is_called(tmp_path: Path) -> None:
    drawing = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    (tmp_path / "drawing.png").write_text(drawing, encoding="ascii")
    with pytest.raises(TableError, match=r"'drawing.png'.*its content is of an unknown format"):
        read_images(tmp_path)
