"""What the shell offers when Tab is pressed; without offers it completes file names itself."""

from coterie.methods import METHODS, get_methods


def complete_method(typed: str) -> list[str]:
    """Return the methods whose names start like this."""
    return [name for name in METHODS if name.startswith(typed)]


def complete_learner(typed: str) -> list[str]:
    """Return the methods that can be trained whose names start like this."""
    return [method.name for method in get_methods() if method.learns_from and method.name.startswith(typed)]


def complete_weights(typed: str) -> list[str]:
    """Return the shipped weights whose names start like this."""
    from coterie.pretrained.registry import pretrained_names  # noqa: PLC0415  (imports numpy, which parsing does not need)

    return [name for name in pretrained_names() if name.startswith(typed)]
