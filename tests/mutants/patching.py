"""Planting a bug for the length of a ``with`` block: replace a function wherever the partitioner has bound it."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from spmd.registry import Registry

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Mutant:
    """One planted bug: ``what`` says in words what is wrong.

    ``focus`` names the operation that shows it, ``first`` the seed to begin at, where few programs show it.
    """

    name: str
    what: str
    plant: Patch
    focus: str
    first: int


MUTANTS: list[Mutant] = []


def mutant(what: str, focus: str = "", first: int = 0) -> Callable[[Patch], Patch]:
    """Register a function that returns the context manager of a planted bug."""

    def register(plant: Patch) -> Patch:
        MUTANTS.append(Mutant(plant.__name__, what, plant, focus, first))
        return plant

    return register


@contextlib.contextmanager
def method(cls: type, name: str, replacement: Any) -> Iterator[None]:
    """Another method, property or function of a class, its own or inherited; its bases stay as they are."""
    own = cls.__dict__.get(name)
    assert own is not None or hasattr(cls, name), f"{cls.__name__} has no {name}"
    setattr(cls, name, replacement)
    clear_caches()
    try:
        yield
    finally:
        if own is None:
            delattr(cls, name)
        else:
            setattr(cls, name, own)
        clear_caches()


@contextlib.contextmanager
def function(original: Callable[..., Any], replacement: Callable[..., Any]) -> Iterator[None]:
    """Another function in every module of the partitioner that has imported ``original``."""
    places = [
        (module, name)
        for module in _partitioner_modules()
        for name, value in vars(module).items()
        if value is original
    ]
    assert places, f"{original} is bound nowhere"
    for module, name in places:
        setattr(module, name, replacement)
    clear_caches()
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)
        clear_caches()


@contextlib.contextmanager
def entry(registry: Registry[Any, Any], key: Any, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Another entry of a registry: ``wrap`` makes it from the present one."""
    original = registry[key]
    registry._entries[key] = wrap(original)
    clear_caches()
    try:
        yield
    finally:
        registry._entries[key] = original
        clear_caches()


def clear_caches() -> None:
    """Forget what was computed with (or without) the planted bug."""
    for module in _partitioner_modules():
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


def _partitioner_modules() -> list[Any]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] == "partitioner"
    ]
