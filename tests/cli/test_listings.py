"""``coterie methods``, ``weights`` and ``info``, and what the shell completes."""

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.cli.completion import complete_learner
from coterie.methods import METHODS
from coterie.pretrained.registry import pretrained_names
from tests.cli.conftest import Command

NAMED_SHELL = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # lets typer take the name of the shell
_PEOPLE = "person,height,weight,plan,joined,vip\n" + "".join(
    f"p{i},{150 + i % 3 * 20 + i % 5},{50 + i % 3 * 15},{'abc'[i % 3]},2024-0{1 + i % 3}-1{i % 9},{'tf'[i % 2]}\n"
    for i in range(30)
)


def test_methods(command: Command) -> None:
    shown = command("methods").out
    found = json.loads(command("methods", "--json").out)
    assert [each["name"] for each in found] == list(METHODS)
    by_name = {each["name"]: each for each in found}
    assert by_name["coterie"]["needs"] == []
    assert "--effort" in by_name["coterie"]["options"]
    assert (by_name["tcc"]["n_clusters"], by_name["dac"]["n_clusters"]) == ("-k", "found")
    assert by_name["dac"]["needs"] == ["torch", "zuko"]
    assert all(text in shown for text in ("attention-based", "found, or -k", "torch, zuko", "--effort"))


def test_weights(command: Command) -> None:
    shown = command("weights").out
    found = json.loads(command("weights", "--json").out)
    assert [each["name"] for each in found] == pretrained_names()
    assert all(each["name"] in shown and each["bytes"] > 10_000 and each["summary"] for each in found)
    assert "309 kB" in shown


def test_info_on_a_model(command: Command) -> None:
    Path("people.csv").write_text(_PEOPLE)
    arguments = ("--id", "person", "-k", "3", "--effort", "fast", "--save", "people.safetensors", "-q")
    command("cluster", "people.csv", *arguments)
    found = json.loads(command("info", "people.safetensors", "--json").out)
    assert (found["method"], found["n_clusters"], found["sizes"]) == ("coterie", 3, [10, 10, 10])
    assert (found["columns"]["height"], found["columns"]["plan"]) == ("number", "category, 3 levels")
    assert (found["parameters"]["n_clusters"], found["parameters"]["effort"]) == (3, "fast")
    shown = command("info", "people.safetensors").out
    assert shown.startswith("people.safetensors: model of the method coterie, written by Coterie ")
    for text in ("clusters: 3, of 10, 10, 10 rows", "found by: ", "confidence: ", "note: Chosen from", "new rows are"):
        assert text in shown
    command("cluster", "people.csv", "-k", "1", "--save", "one.safetensors", "-q")
    assert "confidence" not in command("info", "one.safetensors").out


def test_info_on_a_model_of_many_columns_or_images(command: Command) -> None:
    X = np.random.default_rng(0).normal(size=(12, 50)) + np.repeat([0.0, 9.0], 6)[:, None]
    np.save("wide.npy", X)
    np.save("images.npy", X[:, :48].reshape(12, 6, 8))
    for name in ("wide", "images"):
        command("cluster", f"{name}.npy", "--effort", "fast", "--save", f"{name}.safetensors", "-q")
    assert "... and 10 more; --json lists all" in command("info", "wide.safetensors").out
    assert len(json.loads(command("info", "wide.safetensors", "--json").out)["columns"]) == 50
    assert "images: 6x8, grey" in command("info", "images.safetensors").out


def test_info_on_weights(command: Command) -> None:
    shown = command("info", "dac-plane-v1").out
    for text in ("dac-plane-v1: weights of the method dac", "DAC for blobs", "features: 2", "6,000 steps", "BSD-3-"):
        assert text in shown
    assert "weights of the method judge" in command("info", "judge-v5").out
    assert "Did you mean 'judge-v5'" in command("info", "judge-v55", code=2).err


def complete(monkeypatch: pytest.MonkeyPatch, command: Command, line: str) -> list[str]:
    """Return what bash offers for the last word of a line."""
    words = line.split(" ")
    monkeypatch.setenv("_COTERIE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit):
        command()
    return words


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("coterie w", ["weights"]),
        ("coterie cluster --method c", ["coterie", "clam"]),
        ("coterie cluster --effort ", ["fast", "balanced"]),
        ("coterie cluster --weights dac-p", ["dac-plane-v1"]),
        ("coterie cluster --gran", ["--granularity"]),
        ("coterie info amcp-m", ["amcp-mog2d-v1"]),
        ("coterie cluster cust", []),  # the shell completes names of files
    ],
)
def test_completion(
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    capsys: pytest.CaptureFixture[str],
    line: str,
    offered: list[str],
) -> None:
    complete(monkeypatch, command, line)
    assert capsys.readouterr().out.split() == offered


def test_completion_can_be_shown(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAMED_SHELL, "1")
    with pytest.raises(SystemExit):
        command("--show-completion", "bash")
    assert "complete -o default -F _coterie_completion coterie" in capsys.readouterr().out
    assert complete_learner("a") == ["attention-based", "amcp"]
