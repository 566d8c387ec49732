"""Rules that no linter checks: a light import, public names and documentation."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

import coterie
from coterie.methods import METHODS, get_method
from coterie.tcc.losses import info_nce
from tests.shapes import check_first_calls


def modules() -> Iterator[ModuleType]:
    yield coterie
    for found in pkgutil.walk_packages(coterie.__path__, "coterie."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def in_fresh_interpreter(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light_and_quick() -> None:
    heavy = ("torch", "sklearn", "scipy", "pandas", "polars", "pyarrow", "numpy", "narwhals", "typer", "jinja2")
    code = f"import sys, coterie; dir(coterie); print([name for name in {heavy} if name in sys.modules])"
    assert in_fresh_interpreter(code) == "[]"
    code = "import time; t = time.perf_counter(); import coterie; print(time.perf_counter() - t)"
    assert min(float(in_fresh_interpreter(code)) for _ in range(3)) < 0.3


def test_public_names_are_exactly_those_of_dir() -> None:
    assert set(coterie.__all__) == set(dir(coterie))
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    with pytest.raises(AttributeError, match=r"no attribute 'KMeans'; it has: .*ClAM"):
        getattr(coterie, "KMeans")  # noqa: B009  (mypy rejects the attribute)
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
def test_every_method_of_an_estimator_documents_its_arguments(name: str) -> None:
    kind = get_method(name).load_estimator()
    for method, function in inspect.getmembers(kind, inspect.isfunction):
        if method.startswith("_") or not function.__module__.startswith("coterie"):
            continue
        texts = [inspect.getdoc(vars(base)[method]) or "" for base in kind.__mro__ if method in vars(base)]
        for argument in inspect.signature(function).parameters:
            if argument not in {"self", "params", "X", "y"}:
                assert re.search(rf"^{argument} : ", "\n".join(texts), flags=re.MULTILINE), method


def test_shapes_in_signatures_are_checked() -> None:
    def total(x: Float[Tensor, "N D"], y: Float[Tensor, "N D"]) -> Tensor:
        return x.sum() + y.sum()

    assert hasattr(info_nce, "__wrapped__"), "functions of the package are wrapped when they are imported"
    with pytest.raises(TypeCheckError):
        check_first_calls(total)(torch.zeros(3, 2), torch.zeros(4, 2))
