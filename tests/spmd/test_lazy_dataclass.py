"""The project's decorator of dataclasses makes what the standard library's makes, but only what is asked for."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from spmd.lazy_dataclass import dataclass as lazily

Decorator = Callable[..., Any]
T = TypeVar("T")


def plain(dataclass: Decorator) -> Any:
    @dataclass
    class Point:
        x: int
        y: float = 2.0
        names: list[str] = field(default_factory=list, repr=False)
        size: int = field(init=False, default=7)
        hidden: int = field(default=1, compare=False)
        kind: ClassVar[str] = "point"

    return Point


def frozen(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Edge:
        """An edge."""

        x: int = 3
        y: tuple[int, ...] = ()
        weight: float = field(default=1.0, kw_only=True)

        @property
        def both(self) -> tuple[Any, ...]:
            return (self.x, self.y)

    return Edge


def slotted(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True, order=True)
    class Size:
        x: int
        y: int = 0
        total: int = field(init=False, default=5)
        seen: set[int] = field(default_factory=set, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    return Size


def derived(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True)
    class Base(Generic[T]):
        x: int
        y: int = 1

    @dataclass(frozen=True, slots=True)
    class Derived(Base[T]):
        y: int = 2
        z: int = 3

    return Derived


def undecorated_subclass(dataclass: Decorator) -> Any:
    @dataclass
    class Base:
        x: int
        y: int = 1

    class Child(Base):
        def __init__(self, x: int, y: int = 4) -> None:
            super().__init__(x, y)

    return Child


def own_methods(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Name:
        x: str
        y: str = ""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and str(self.x).lower() == str(other.x).lower()

        def __repr__(self) -> str:
            return f"<{self.x}>"

    return Name


def by_identity(dataclass: Decorator) -> Any:
    @dataclass(eq=False, slots=True)
    class Node:
        x: int
        y: int = 0
        uses: list[Any] = field(default_factory=list)

    return Node


def own_hash(dataclass: Decorator) -> Any:
    @dataclass(kw_only=True)
    class Key:
        x: int
        y: int = 0

        def __hash__(self) -> int:
            return hash(self.x)

    return Key


KINDS = (
    plain, frozen, slotted, derived, undecorated_subclass, own_methods, by_identity, own_hash,
)  # fmt: skip


def said(action: Callable[[], object]) -> object:
    """Return what `action` returns or raises, with the names of its classes alone."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001 - errors are compared
        return type(error), str(error)


def behavior(cls: Any) -> list[object]:
    """Return what can be seen of a class and of some instances."""

    def made(*arguments: Any, **named: Any) -> Any:
        if any(f.kw_only and f.name == "x" for f in dataclasses.fields(cls)):
            named |= dict(zip("xy", arguments, strict=False))
            arguments = ()
        return cls(*arguments, **named)

    one, same, other = made(1, 2), made(1, 2), made(2)
    seen: list[object] = [
        cls.__name__, cls.__qualname__, cls.__module__, repr(one), repr(other), one == same, one == other,
        one == 3, one != other, cls.__match_args__, dataclasses.is_dataclass(cls),
        str(inspect.signature(cls)) if cls.__name__ != "Child" else "",
        [(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(cls)],
        dataclasses.asdict(one), repr(dataclasses.replace(one, x=9)), repr(copy.copy(one)), repr(copy.deepcopy(one)),
        cls.__hash__ is None, getattr(cls, "__slots__", None), hasattr(one, "__dict__"), hasattr(cls, "size"),
        said(lambda: hash(one) == hash(same)), said(lambda: one < other), said(lambda: one >= other),
        said(lambda: sorted([other, one]) == [one, other]), said(lambda: setattr(one, "x", 5)),
        said(lambda: delattr(same, "x")), said(lambda: made(nothing=1)), said(lambda: made()),
        repr(one),
    ]  # fmt: skip
    match other:
        case cls(x=2):
            seen.append("matched")
    return [str(x) for x in seen]


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_does_what_the_standard_librarys_does(kind: Callable[[Decorator], Any]) -> None:
    ours, theirs = behavior(kind(lazily)), behavior(kind(dataclasses.dataclass))
    assert ours == theirs


@pytest.mark.parametrize("kind", [frozen, slotted])
def test_the_standard_decorator_derives_from_it(kind: Callable[[Decorator], Any]) -> None:
    @dataclasses.dataclass(frozen=True)
    class Derived(kind(lazily)):  # type: ignore[misc]
        z: int = 4

    assert repr(Derived(1, z=5)).endswith("z=5)")
    assert Derived(1, z=5) != Derived(1)


def test_methods_are_compiled_when_they_are_called() -> None:
    cls = frozen(lazily)
    methods = ("__init__", "__eq__", "__hash__", "__repr__")

    def compiled() -> list[str]:
        return [name for name in methods if inspect.isfunction(vars(cls)[name])]

    assert compiled() == []
    one = cls(1)
    assert compiled() == ["__init__"]
    assert {one: 2}[one] == 2
    assert compiled() == ["__init__", "__hash__"]
    assert one == cls(1)
    assert compiled() == ["__init__", "__eq__", "__hash__"]


def test_threads_may_be_the_first_together() -> None:
    with ThreadPoolExecutor(8) as threads:
        for _ in range(50):
            cls = slotted(lazily)
            made = list(
                threads.map(lambda n, cls=cls: (hash(cls(n % 2, 1)), cls(n % 2, 1)), range(16))
            )
            assert len({code for code, _ in made}) == 2
            assert len({one for _, one in made}) == 2


@pytest.mark.parametrize("dataclass", [lazily, dataclasses.dataclass])
@pytest.mark.parametrize("default", [[], field(default={})])
def test_a_default_that_can_be_changed_is_refused(dataclass: Decorator, default: Any) -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @dataclass
        class Shared:
            names: Any = default


@pytest.mark.parametrize("dataclass", [lazily, dataclasses.dataclass])
def test_a_default_before_a_field_without_one_is_refused(dataclass: Decorator) -> None:
    def made() -> Any:
        @dataclass
        class Ordered:
            x: int = 1
            y: int  # type: ignore[misc]

        return Ordered(y=2)

    with pytest.raises(TypeError, match="non-default argument 'y' follows default argument"):
        made()
