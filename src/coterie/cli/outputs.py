"""The files that a command writes: checked before the work begins, and written all or none."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from coterie.cli.inputs import Writing
from coterie.errors import InputError, OutputError
from coterie.tables.readers.binary import pyarrow

_ENDINGS = {
    "--output": (".csv", ".tsv", ".parquet"),
    "--report": (".html", ".htm"),
    "--save": (".safetensors",),
}


@final
@dataclass(frozen=True)
class Outputs:
    """Paths that were found fit to be written to; None where nothing was asked for."""

    rows: Path | None
    report: Path | None
    model: Path | None
    to_stdout: bool
    force: bool

    @property
    def files(self) -> dict[str, str]:
        """What is written, and where to."""
        named = {"rows": self.rows, "report": self.report, "model": self.model}
        return {what: str(path) for what, path in named.items() if path is not None}

    @property
    def wants_rows(self) -> bool:
        """Whether the table of rows is asked for."""
        return self.to_stdout or self.rows is not None

    @property
    def typed(self) -> bool:
        """Whether the table of rows knows numbers from texts."""
        return self.rows is not None and self.rows.suffix.lower() == ".parquet"

    @contextmanager
    def staged(self) -> Iterator["Outputs"]:
        """Lend paths in hidden folders; what was written there is moved to its place at the end, if all went well."""
        with ExitStack() as folders:
            moves: dict[Path, Path] = {}

            def stage(path: Path | None) -> Path | None:
                if path is None:
                    return None
                target = path.resolve()
                moves[target] = Path(folders.enter_context(_hidden_folder(target.parent))) / target.name
                return moves[target]

            yield Outputs(stage(self.rows), stage(self.report), stage(self.model), self.to_stdout, force=False)
            for target in moves:
                _check_place(target, force=self.force)  # it may have come into being during the work
            for target, staged in moves.items():
                staged.replace(target)


def check_outputs(writing: Writing, sources: Sequence[str]) -> Outputs:
    """Refuse, before any work, what could not be written after it."""
    to_stdout = writing.rows == "-"
    if to_stdout and writing.json:
        raise InputError("both -o - and --json write to the standard output; name a file for one of the two")
    if writing.append and writing.rows is None:
        raise InputError("--append is about the rows that are written; say where to (-o OUT)")
    given = {
        "--output": None if to_stdout else writing.rows,
        "--report": writing.report,
        "--save": writing.model,
    }
    paths = {option: Path(path) for option, path in given.items() if path is not None}
    taken = {Path(source).resolve(): "read from" for source in sources if source != "-"}
    for option, path in paths.items():
        _check_ending(option, path)
        target = path.resolve()
        if target in taken:
            raise OutputError(f"{option} {str(path)!r} is {taken[target]} as well; choose another name")
        taken[target] = f"written by {option}"
        _check_place(path, force=writing.force)
        _check_writable(target)
    return Outputs(paths.get("--output"), paths.get("--report"), paths.get("--save"), to_stdout, force=writing.force)


def _check_ending(option: str, path: Path) -> None:
    endings = _ENDINGS[option]
    ending = path.suffix.lower()
    if ending not in endings:
        seen = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise OutputError(f"{option} {str(path)!r} {seen}; known are {', '.join(endings)}")
    if ending == ".parquet":
        pyarrow("parquet")


def _check_place(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise OutputError(f"{str(path)!r} is not a plain file; name one, or write to standard output (-o -)")
    if path.exists() and not force:
        raise OutputError(f"{str(path)!r} exists already; choose another name, or allow replacing it (--force)")
    if not path.parent.is_dir():
        raise OutputError(f"the folder {str(path.parent)!r} does not exist; create it first")


def _check_writable(target: Path) -> None:
    """Write an empty file of a name as long as any that will be needed, and remove it."""
    with _hidden_folder(target.parent) as folder:
        try:
            Path(folder, f".{target.name}.00000000.part").touch()
        except OSError as error:
            raise OutputError(f"{str(target)!r} cannot be written: {error.strerror or error}") from error


def _hidden_folder(parent: Path) -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix=".coterie-", dir=parent)
    except OSError as error:
        raise OutputError(f"nothing can be written to {str(parent)!r}: {error.strerror or error}") from error
