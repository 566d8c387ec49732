"""Suites: TOML files that declare what is measured, and the jobs that a protocol derives from them."""

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.lines import RESULTS, Line
from coterie.errors import InputError

SUITES = Path(__file__).parent / "suites"
Spec: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Lines that are measured together, such as several seeds of one method or several sizes of one data set."""

    lines: Sequence[Line]
    """Everything known beforehand, one dictionary per line; this must include the fields of the key."""
    measure: Callable[[Sequence[Line]], Iterable[Line]]
    """Yield finished lines, given those of the above that are not recorded yet; further lines are welcome."""


@dataclass(frozen=True)
class Suite:
    """A suite file, with the options of the command merged in."""

    name: str
    spec: Spec
    results: Path
    run_folder: Path  # where training is kept, so that it can be resumed
    key: Sequence[str] = field(default=("suite", "data", "method", "seed", "settings"))
    """Fields that identify a line: what is recorded is not measured again."""

    def __getitem__(self, name: str) -> Any:
        return self.spec[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value of the file, or the default."""
        return self.spec.get(name, default)

    @property
    def methods(self) -> dict[str, Spec]:
        """Settings of each method by name, ``like`` resolved."""
        methods: dict[str, Spec] = self.spec.get("methods", {})
        return {name: resolve(methods, name) for name in methods}

    def jobs(self) -> Iterable[Job]:
        """Derive all jobs, recorded or not."""
        module, _, function = str(self["protocol"]).partition(".")
        jobs: Iterable[Job] = getattr(import_module(f"benchmarks.protocols.{module}"), function)(self)
        return jobs

    def set_of(self, line: Line) -> str:
        """Name of the data set of a line."""
        return str(line.get(self.get("set_field", "data"), ""))

    def method_of(self, line: Line) -> str:
        """Name of the method of a line."""
        return str(line.get(self.get("method_field", "method"), ""))


def suite_names() -> list[str]:
    """Return the names of all suites."""
    return sorted(path.stem for path in SUITES.glob("*.toml") if not path.stem.endswith("_published"))


def load_suite(
    name: str,
    *,
    results: Path | None = None,
    run_folder: Path | None = None,
    overrides: Sequence[str] = (),
    smoke: bool = False,
) -> Suite:
    """Read a suite by name.

    Parameters
    ----------
    name : str
        Such as "dac", for ``suites/dac.toml``.
    results : Path, optional
        Results file, instead of that of the suite.
    run_folder : Path, optional
        Where training is kept; a folder of the suite's own among temporary files by default.
    overrides : sequence of str
        Values to change, as ``key.subkey=value``, the value as in TOML.
    smoke : bool
        Whether to apply the table ``smoke`` of the file, which makes everything small.
    """
    if name not in suite_names():
        raise InputError(f"There is no suite {name!r}. There are: {', '.join(suite_names())}.")
    spec = tomllib.loads((SUITES / f"{name}.toml").read_text(encoding="utf-8"))
    if smoke:
        spec = merge(spec, spec.get("smoke", {}))
    for text in overrides:
        try:
            spec = merge(spec, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"--set {text!r} is not TOML ({error}). Write for example --set minutes=1.") from error
    return Suite(
        name,
        spec,
        results or RESULTS / spec["results"],
        run_folder or Path(tempfile.gettempdir()) / "coterie-benchmarks" / name,
        *([tuple(spec["key"])] if "key" in spec else []),
    )


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Spec:
    """Return a table with the values of another put over it, table by table."""
    merged = dict(base)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge(merged[name], value) if both else value
    return merged


def resolve(tables: Mapping[str, Spec], name: str) -> Spec:
    """Return one of several tables; its key ``like`` names another one that it is put over."""
    if name not in tables:
        raise InputError(f"There is no {name!r}. There are: {', '.join(tables)}.")
    own = {key: value for key, value in tables[name].items() if key != "like"}
    return merge(resolve(tables, tables[name]["like"]), own) if "like" in tables[name] else own
