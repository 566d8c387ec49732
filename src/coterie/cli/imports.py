"""The import of what takes long: scikit-learn, torch and what uses them; only after all checks that need neither."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _Postponed(ModuleType):
    """Stands in for a module, which is imported only if something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def quick_import(module: str) -> Iterator[None]:
    """Let the first import of a module be quicker, by half: without garbage collection, pandas and ``scipy.stats``.

    Modules stay, so searching them for garbage is in vain. scikit-learn imports pandas wherever it is installed, but
    uses it for data frames only, and the commands have none. It also imports ``scipy.stats``, which takes as long as a
    small fit, for functions that are rarely called. What does need either of them imports it afterwards, as usual.
    """
    if module in sys.modules:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    # None lets an import fail as if the module were missing.
    hidden: dict[str, Any] = {"pandas": None, "scipy.stats": _Postponed("scipy.stats")}
    hidden = {name: instead for name, instead in hidden.items() if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name, instead in hidden.items():
            if name in sys.modules and sys.modules[name] is instead:
                del sys.modules[name]
        if collects:
            gc.freeze()  # later collections leave out what was imported
            gc.enable()
