"""A registry: one table from a key to a value, filled by decorators when the modules that have them are imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Registry(Generic[K, V]):
    """Maps keys to values; registering a key twice is a programming error.

    EVALUATORS: Registry[Opcode, Evaluate] = Registry("evaluator")

    @EVALUATORS.register(Opcode.ADD)
    def add(...): ...
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._entries: dict[K, V] = {}
        #: Key -> module that registers it, which is imported when the key is requested.
        self._modules: dict[K, str] = {}
        #: The modules among these that are known to have been imported completely.
        self._imported: set[str] = set()

    def import_at_need(self, modules: Mapping[str, Iterable[K]]) -> None:
        """Name the modules that register these keys. Each is imported when one of its keys is first asked for."""
        for module, keys in modules.items():
            self._modules.update(dict.fromkeys(keys, module))

    def keys_of(self, module: str) -> list[K]:
        """Return the keys that ``module`` is named for."""
        return [key for key, name in self._modules.items() if name == module]

    def import_all(self) -> None:
        """Import the modules of all keys now, for callers that measure the time of later calls."""
        for module in dict.fromkeys(self._modules.values()):
            import_module(module)

    def register(self, *keys: K) -> Callable[[V], V]:
        def decorator(value: V) -> V:
            for key in keys:
                self.add(key, value)
            return value

        return decorator

    def add(self, key: K, value: V) -> None:
        if key in self._entries:
            raise ValueError(f"{self.name}: {key} is registered twice")
        self._entries[key] = value

    def get(self, key: K) -> V | None:
        self._import_module_of(key)
        return self._entries.get(key)

    def __getitem__(self, key: K) -> V:
        self._import_module_of(key)
        return self._entries[key]

    def _import_module_of(self, key: K) -> None:
        """Import the module that registers ``key``, or wait for the thread that imports it.

        A key is there before its module has run to the end, and with it all that the value uses.
        """
        name = self._modules.get(key)
        if name is None or name in self._imported:
            return
        module = import_module(name)
        # The call may come from this thread's own import of the module.
        if not getattr(module.__spec__, "_initializing", False):
            self._imported.add(name)

    def __contains__(self, key: K) -> bool:
        return key in self._entries or key in self._modules

    def __iter__(self) -> Iterator[K]:
        return iter({**self._modules, **self._entries})

    def __len__(self) -> int:
        return len(self._modules.keys() | self._entries.keys())
