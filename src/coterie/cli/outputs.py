"""Output files of a command: checked before the work starts, and written all or none."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from coterie.cli.options import Writing
from coterie.errors import OutputError
from coterie.tables.readers import find_format, writable_endings


@final
@dataclass(frozen=True)
class Outputs:
    """Checked output paths; None where no output was requested."""

    rows: Path | None
    report: Path | None
    model: Path | None
    to_stdout: bool
    force: bool

    @property
    def files(self) -> dict[str, str]:
        """Paths by kind of output."""
        named = {"rows": self.rows, "report": self.report, "model": self.model}
        return {what: str(path) for what, path in named.items() if path is not None}

    @property
    def wants_rows(self) -> bool:
        """Whether the table of rows is requested."""
        return self.to_stdout or self.rows is not None

    @property
    def typed(self) -> bool:
        """Whether the format of the rows stores numbers and dates as such."""
        found = None if self.rows is None else find_format(self.rows)
        return found is not None and not found.is_text

    @contextmanager
    def staged(self) -> Iterator["Outputs"]:
        """Yield paths in hidden folders; at the end, if nothing failed, files are moved from there to their targets."""
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
                _check_target(target, force=self.force)  # it may have been created in the meantime
            for target, staged in moves.items():
                staged.replace(target)


def check_outputs(writing: Writing, sources: Sequence[str]) -> Outputs:
    """Check all output paths before the work starts."""
    to_stdout = writing.rows == "-"
    given = {"--output": None if to_stdout else writing.rows, "--report": writing.report, "--save": writing.save}
    paths = {option: Path(path) for option, path in given.items() if path is not None}
    taken = {Path(source).resolve(): "the input" for source in sources if source != "-"}
    for option, path in paths.items():
        _check_ending(option, path)
        target = path.resolve()
        if target in taken:
            raise OutputError(f"{option} {str(path)!r} is also {taken[target]}. Choose another name.")
        taken[target] = f"the path of {option}"
        _check_target(path, force=writing.force)
        with _hidden_folder(target.parent) as folder:
            try:
                Path(folder, f".{target.name}.00000000.part").touch()  # the longest name that will be needed
            except OSError as error:
                raise OutputError(f"{str(target)!r} cannot be written: {error.strerror or error}.") from error
    return Outputs(paths.get("--output"), paths.get("--report"), paths.get("--save"), to_stdout, force=writing.force)


def _check_ending(option: str, path: Path) -> None:
    endings = {"--output": writable_endings(), "--report": (".html", ".htm"), "--save": (".safetensors",)}[option]
    if not path.name.lower().endswith(endings):
        raise OutputError(f"{option} {str(path)!r} has an unknown ending. Use one of: {', '.join(endings)}.")


def _check_target(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder. Give a file name.")
    if path.exists() and not path.is_file():
        raise OutputError(
            f"{str(path)!r} is not a regular file. Give another name, or write to standard output with -o -."
        )
    if path.exists() and not force:
        raise OutputError(f"{str(path)!r} exists already. Choose another name, or replace it with --force.")
    if not path.parent.is_dir():
        raise OutputError(f"The folder {str(path.parent)!r} does not exist. Create it first.")


def _hidden_folder(parent: Path) -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix=".coterie-", dir=parent)
    except OSError as error:
        raise OutputError(f"The folder {str(parent)!r} is not writable: {error.strerror or error}.") from error
