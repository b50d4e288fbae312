"""A registry: one table from a key to a value, filled by decorators at import time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
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
        return self._entries.get(key)

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
