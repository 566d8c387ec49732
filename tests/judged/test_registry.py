"""A candidate algorithm from outside the package takes part in everything; judges read columns by name."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from coterie import Coterie, load
from coterie.checkpoint import save_checkpoint
from coterie.errors import InputError, WeightsError
from coterie.judged.candidates.registry import ALGORITHMS, Algorithm, generate_candidates, register
from coterie.judged.features.table import column_names
from coterie.judged.judge import Judge
from coterie.judged.space import Geometry, Labels
from coterie.pretrained.registry import load_pretrained
from tests.judged.sets import blobs

WEIGHTS = "judge-v2"


def stripes(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Cut the first column into intervals of equal width."""
    column = geometry.rows[:, 0]
    for k in ks:
        yield np.digitize(column, np.linspace(column.min(), column.max(), k + 1)[1:-1])


@pytest.fixture
def only_stripes() -> Iterator[None]:
    """Register an algorithm and remove all others, so that it must be chosen."""
    others = dict(ALGORITHMS)
    ALGORITHMS.clear()
    register(Algorithm("stripes", stripes, rule="centres"))
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(others)


@pytest.mark.usefixtures("only_stripes")
def test_an_algorithm_from_outside_takes_part_in_everything(tmp_path: Path) -> None:
    x, truth = blobs(120, d=1, k=2)
    model = Coterie(effort="fast", random_state=0).fit(x)
    assert model.chosen_ is not None
    assert model.chosen_["algorithm"] == "stripes"
    assert model.notes_[-1].endswith("candidates: stripes on standardised columns.")
    assert {each["algorithm"] for each in (*model.candidates_, *model.shortlist())} == {"stripes"}
    np.testing.assert_array_equal(model.labels_ == model.labels_[0], truth == truth[0])
    new = np.array([[-1.0], [7.0]])
    assert len(set(model.predict(new))) == 2
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    assert loaded.candidates_ == model.candidates_
    assert "by stripes" in column_names()


def test_a_name_can_be_registered_only_once() -> None:
    with pytest.raises(InputError, match="'k-means' is registered already"):
        register(Algorithm("k-means", stripes))


def rewritten(path: Path, columns: list[str], order: list[int]) -> Judge:
    """Read a copy of the shipped judge with its columns in another order, -1 standing for a new one."""
    arrays, card = load_pretrained(WEIGHTS)
    extended = dict(arrays)
    for name, value in arrays.items():
        if name in {"centre", "spread"}:
            extended[name] = np.append(value, np.float32(2.5))[order]
        elif name.endswith("embed.0.weight"):
            extended[name] = np.column_stack((value, np.full(len(value), 3.0, dtype=np.float32)))[:, order]
    card = card | {"columns": columns, "model": card["model"] | {"n_columns": len(columns)}}
    save_checkpoint(path, extended, card, force=True)
    return Judge.read(path)


def test_a_judge_gives_the_same_scores_whatever_the_order_of_its_columns(tmp_path: Path) -> None:
    x = blobs(80, spread=2.0)[0]
    candidates = generate_candidates(x, effort="fast", seed=0)
    judge = Judge.load(WEIGHTS)
    expected = judge.score(x, candidates)
    order = np.random.default_rng(0).permutation(len(judge.columns)).tolist()
    permuted = rewritten(tmp_path / "permuted.safetensors", [judge.columns[index] for index in order], order)
    extra = rewritten(
        tmp_path / "extra.safetensors", ["a column of the future", *judge.columns], [-1, *range(len(judge.columns))]
    )
    for other in (permuted, extra):
        scored = other.score(x, candidates)
        np.testing.assert_allclose(scored.logits, expected.logits, atol=1e-4)
        assert scored.single_probability == pytest.approx(expected.single_probability, abs=1e-5)


def test_new_columns_do_not_change_an_old_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    x = blobs(80, spread=2.0)[0]
    candidates = generate_candidates(x, effort="fast", seed=0)
    judge = Judge.load(WEIGHTS)
    expected = judge.score(x, candidates).logits
    monkeypatch.setitem(ALGORITHMS, "stripes", Algorithm("stripes", stripes))
    assert "by stripes" in set(column_names()) - set(judge.columns)
    np.testing.assert_array_equal(judge.score(x, candidates).logits, expected)


def test_a_judge_of_unknown_columns_is_rejected(tmp_path: Path) -> None:
    count = len(Judge.load(WEIGHTS).columns)
    with pytest.raises(WeightsError, match="trained on columns that this version does not compute"):
        rewritten(tmp_path / "judge.safetensors", [f"unknown {index}" for index in range(count)], list(range(count)))
