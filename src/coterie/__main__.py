"""Entry point of the ``coterie`` command and of ``python -m coterie``."""

import io
import sys
from collections.abc import Sequence

import typer

from coterie.cli import build_app
from coterie.errors import CoterieError

_BAD_INPUT = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; errors that the user can fix are printed in one line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments of the command; by default those of the process. Without any, help is shown.

    Returns
    -------
    int
        0, or 2 for invalid input, or 130 if interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal lacks must not end the program
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        code = build_app()(given or ["--help"], prog_name="coterie", standalone_mode=False)
        sys.stdout.flush()
    except CoterieError as error:
        return _print_error(str(error))
    except typer.TyperException as error:
        return _print_error(error.format_message())
    except MemoryError:
        return _print_error("Not enough memory for this table. Use fewer rows or columns.")
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return int(code or 0)


def _print_error(message: str) -> int:
    typer.echo(f"coterie: {' '.join(message.split())}", err=True)
    return _BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
