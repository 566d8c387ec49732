"""Texts of public packages, which the judge of embeddings is trained on."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.data import corpora, labelled_texts


def test_texts_of_several_classes_and_small_classes_are_left_out() -> None:
    texts = [(f"class {index % 3}", f"text {index}") for index in range(90)]
    texts += [("class 0", "both"), ("class 1", "both"), ("class 0", "text 0"), ("small", "alone")]
    chosen, labels = corpora.select(texts, 2500)
    assert sorted(Counter(labels.tolist()).values()) == [30, 30, 30]
    assert len(set(chosen)) == 90
    assert "both" not in chosen
    assert "alone" not in chosen


def test_large_classes_are_cut_evenly() -> None:
    sizes = {"large": 500, "medium": 60, "small": 20}
    entries = [(name, f"{name} {i}") for name, size in sizes.items() for i in range(size)]
    chosen, labels = corpora.select(entries, 100)
    assert sorted(np.bincount(labels).tolist()) == [20, 40, 40]
    assert len(chosen) == 100


def test_many_classes_keep_the_smallest_number_of_texts() -> None:
    entries = [(f"class {index % 30}", f"text {index}") for index in range(1500)]
    _, labels = corpora.select(entries, 100)
    assert np.bincount(labels).tolist() == [corpora.MIN_CLASS] * 30


def test_other_classes_of_the_same_texts_take_much_the_same() -> None:
    fine = [(f"class {index % 4}", f"text {index}") for index in range(400)]
    broad = [(f"class {index % 2}", f"text {index}") for index in range(400)]
    common = set(corpora.select(fine, 200)[0]) & set(corpora.select(broad, 200)[0])
    assert len(common) > 180


def test_subjects_of_foldoc_are_read_from_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "debian/dict-foldoc/usr/share/dictd/foldoc.dict.dz"
    path.parent.mkdir(parents=True)
    entries = (
        "ring\nring network\n\n   <networking> A {network} in a\n   circle.\n\n   (1994)\n\nnone\n\n   No subject.\n\n"
    )
    path.write_bytes(gzip.compress(entries.encode()))
    assert list(labelled_texts.foldoc(tmp_path)) == [("networking", "ring: A network in a\n   circle.")]


def test_terms_of_an_ontology_belong_to_the_only_branch_above_them(tmp_path: Path) -> None:
    terms = {"T:0": [], "T:1": ["T:0"], "T:2": ["T:0"], "T:3": ["T:1"], "T:4": ["T:1", "T:2"]}
    blocks = [
        "\n".join(["[Term]", f"id: {one}", f"name: term {one}", *(f"is_a: {each} ! other" for each in parents)])
        for one, parents in terms.items()
    ]
    (tmp_path / "some.obo").write_text("\n\n".join(["header", *blocks]) + "\n")
    found = list(labelled_texts.ontology(tmp_path, "some.obo", ("T:0",)))
    assert found == [("T:1", "term T:1"), ("T:2", "term T:2"), ("T:1", "term T:3")]


def test_operations_are_those_of_the_service_that_they_belong_to(tmp_path: Path) -> None:
    for service in ("s3", "ec2"):
        path = tmp_path / f"pypi/botocore/botocore/data/{service}/2020-01-01/service-2.json.gz"
        path.parent.mkdir(parents=True)
        operations = {"One": {"documentation": f"<p>Does {service}. More.</p>"}, "Two": {}}
        path.write_bytes(gzip.compress(json.dumps({"operations": operations}).encode()))
    assert sorted(labelled_texts.aws_operations(tmp_path)) == [("ec2", "Does ec2"), ("s3", "Does s3")]
