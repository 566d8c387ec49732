"""Loading the tables of benchmarks."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data.tables import (
    DIRECTIONAL,
    load_benchmark,
    load_fashion_mnist,
    load_reference_set,
    reference_set_names,
)
from coterie.errors import InputError


def test_benchmarks_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    with pytest.raises(InputError, match="COTERIE_DATA"):
        load_benchmark("toy")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    for folder in ("clam", "tabular"):
        (tmp_path / folder).mkdir()
        X = np.full((2, 3), len(folder), dtype=np.uint8)
        np.savez(tmp_path / folder / "toy.npz", X=X, y=np.array([0, 1]), classes=np.array(["p", "q"]))
    battery = tmp_path / "clustering-data-v1" / "fcps"
    battery.mkdir(parents=True)
    (battery / "ring.data.gz").write_bytes(gzip.compress(b"1 2\n3 4\n5 6\n"))
    (battery / "ring.labels0.gz").write_bytes(gzip.compress(b"1\n2\n0\n"))
    toy = load_benchmark("toy")
    assert toy.X.dtype == np.float32
    assert (toy.source, toy.classes) == ("clam/toy", ("p", "q"))
    assert load_benchmark("tabular/toy").X[0, 0] == len("tabular")
    assert load_benchmark("ring").y.tolist() == [0, 1, -1]
    with pytest.raises(InputError, match="clam/toy"):
        load_benchmark("../toy")


def test_zoo() -> None:
    if "COTERIE_DATA" not in os.environ:
        pytest.skip("COTERIE_DATA, the folder of benchmark data, is not set")
    zoo = load_benchmark("zoo")
    assert zoo.X.shape == (101, 16)
    assert sorted(set(zoo.y.tolist())) == list(range(7))


def test_fashion_mnist_reads_idx_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no train-images"):
        load_fashion_mnist(tmp_path)
    images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 28, 28)) + bytes(2 * 784)
    labels = b"\0\0\x08\x01" + (2).to_bytes(4, "big") + b"\x03\x09"
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    X, y = load_fashion_mnist(tmp_path)
    assert X.shape == (2, 784)
    assert y.tolist() == [3, 9]
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels[:-1])
    with pytest.raises(InputError, match="whole idx"):
        load_fashion_mnist(tmp_path)


def test_wide_rows_keep_their_units(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    load_reference_set.cache_clear()  # the same names may be those of another folder
    names = {group: reference_set_names(group) for group in sorted(DIRECTIONAL)}
    assert names["texts"] == ["texts/banking77", "texts/bbc", "texts/dblp"]
    # Twenty classes are all that the file has.
    assert names["image-classes"][:5] == [
        f"image-classes/cifar100-{end}" for end in ("5-0", "5-1", "10-0", "10-1", "20-0")
    ]
    for group, name in ((group, name) for group, inside in names.items() for name in inside):
        one = load_reference_set(group, name)
        assert one.X.dtype == np.float32
        assert one.scaled is one.X
        assert one.metric == "cosine"
    draws = [load_reference_set("image-classes", f"image-classes/cifar100-10-{draw}") for draw in (0, 1)]
    assert [one.ks for one in draws] == [(10,), (10,)]
    assert not np.array_equal(draws[0].references[0], draws[1].references[0])
    load_reference_set.cache_clear()
