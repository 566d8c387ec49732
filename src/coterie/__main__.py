"""Start of the command, and of ``python -m coterie``."""

import io
import sys
from collections.abc import Sequence

import typer

from coterie.cli import app
from coterie.errors import CoterieError

_BAD_INPUT = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; what the user can mend is told in one line.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the command's name; by default what it was started with. Where there is nothing, help is shown.

    Returns
    -------
    int
        0, or 2 where something is wrong with the input, or 130 when interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end the program
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        code = app(given or ["--help"], prog_name="coterie", standalone_mode=False)
        sys.stdout.flush()
    except CoterieError as error:
        return _complain(str(error))
    except typer.TyperException as error:
        return _complain(error.format_message())
    except MemoryError:
        return _complain("there is not enough memory for this table; take fewer rows or columns")
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return int(code or 0)


def _complain(message: str) -> int:
    typer.echo(f"coterie: {' '.join(message.split())}", err=True)
    return _BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
