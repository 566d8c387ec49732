"""Rules that no linter knows: lengths of files, weight of the import, and documented names."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.methods import METHODS, get_method
from tests.estimators.test_estimators import FAST

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 400


def modules() -> Iterator[ModuleType]:
    yield coterie
    for found in pkgutil.walk_packages(coterie.__path__, "coterie."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def in_fresh_interpreter(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_no_file_is_too_long(folder: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_import_is_light() -> None:
    heavy = ("torch", "sklearn", "scipy", "pandas", "polars", "pyarrow", "numpy", "narwhals", "typer", "jinja2")
    code = f"import sys, coterie; dir(coterie); print([name for name in {heavy} if name in sys.modules])"
    assert in_fresh_interpreter(code) == "[]"


def test_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import coterie; print(time.perf_counter() - t)"
    assert min(float(in_fresh_interpreter(code)) for _ in range(3)) < 0.3


def test_public_names_are_there_and_no_others() -> None:
    assert set(coterie.__all__) == set(dir(coterie))
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    with pytest.raises(AttributeError, match=r"no attribute 'KMeans'; it has: .*ClAM"):
        getattr(coterie, "KMeans")  # noqa: B009  (mypy knows that it is not there)
    assert re.fullmatch(r"\d+\.\d+\.\d+", coterie.__version__)


def test_everything_public_is_documented() -> None:
    undocumented = []
    for module in modules():
        if not inspect.getdoc(module):
            undocumented.append(module.__name__)
        for name, value in vars(module).items():
            if name.startswith("_") or inspect.getmodule(value) is not module:
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                undocumented += [f"{module.__name__}.{member}" for member in without_docstring(name, value)]
    assert undocumented == []


def without_docstring(name: str, value: Any) -> Iterator[str]:
    if not inspect.getdoc(value):
        yield name
    if inspect.isclass(value):
        for member, attribute in vars(value).items():
            inner = getattr(attribute, "__func__", attribute)
            if not member.startswith("_") and inspect.isfunction(inner) and not inspect.getdoc(inner):
                yield f"{name}.{member}"


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_and_attribute_of_an_estimator_is_documented(name: str) -> None:
    kind = get_method(name).load_estimator()
    text = inspect.getdoc(kind) or ""
    parameters, attributes = re.split(r"^Attributes\n-+$", text, flags=re.MULTILINE)
    documented = re.findall(r"^(\w+) : ", parameters, flags=re.MULTILINE)
    assert documented == list(inspect.signature(kind).parameters), "in the order of the constructor"
    X = np.random.default_rng(0).normal(size=(12, 2))
    fitted = kind(**FAST[name]).fit(X)
    results = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")}
    internal = {"model_", "n_features_in_"}  # the module itself, and what scikit-learn documents
    after_learn = set(re.findall(r"^(\w+_) : .*\n +After ``learn``", attributes, flags=re.MULTILINE))
    documented_results = set(re.findall(r"^(\w+_) : ", attributes, flags=re.MULTILINE))
    assert results - internal == documented_results - after_learn


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_an_estimator_documents_its_arguments(name: str) -> None:
    for method, function in inspect.getmembers(get_method(name).load_estimator(), inspect.isfunction):
        if method.startswith("_") or not function.__module__.startswith("coterie"):
            continue
        for argument in inspect.signature(function).parameters:
            if argument not in {"self", "parameters"}:
                assert re.search(rf"^{argument} : ", inspect.getdoc(function) or "", flags=re.MULTILINE), method
