"""The interpreter's settings while a program is compiled, and afterwards."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from runtime import interpreter
from runtime.interpreter import settings_for_compiling


def settings() -> tuple[tuple[int, int, int], float]:
    return gc.get_threshold(), sys.getswitchinterval()


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    thresholds, interval = settings()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


def test_settings_come_back() -> None:
    before = settings()
    with settings_for_compiling():
        inside = settings()
        assert inside[0][0] > before[0][0]
        assert inside[1] < before[1]
        with settings_for_compiling():
            assert settings() == inside
        assert settings() == inside
    assert settings() == before
    with pytest.raises(ValueError, match="raised"), settings_for_compiling():
        raise ValueError("raised")
    assert settings() == before


def test_two_threads_that_compile_at_once_leave_what_was() -> None:
    before = settings()
    began, may_end = threading.Event(), threading.Event()

    def compile_elsewhere() -> None:
        with settings_for_compiling():
            began.set()
            may_end.wait(60)

    other = threading.Thread(target=compile_elsewhere)
    with settings_for_compiling():
        other.start()
        assert began.wait(60)
        inside = settings()
    assert settings() == inside  # the other still compiles
    may_end.set()
    other.join()
    assert settings() == before


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 10, 10)])
def test_who_has_collections_off_or_rarer_keeps_them_so(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with settings_for_compiling():
        assert gc.get_threshold() == own


def test_who_switches_more_often_keeps_it_so() -> None:
    sys.setswitchinterval(1e-5)
    own = sys.getswitchinterval()
    with settings_for_compiling():
        assert sys.getswitchinterval() == own


def made_in_compilation() -> tuple[int, int, int]:
    """Return the number of objects of each generation behind a compilation that made a hundred thousand."""
    with settings_for_compiling():
        objects: list[list[int]] = [[] for _ in range(100_000)]
    youngest, middle, oldest = (len(gc.get_objects(generation)) for generation in range(3))
    assert len(objects) == 100_000
    return youngest, middle, oldest


@pytest.fixture
def _nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interpreter._compilations, "_program_freezes", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_nothing_is_frozen")
def test_what_a_compilation_makes_is_not_traversed_as_young() -> None:
    youngest, middle, oldest = made_in_compilation()
    assert youngest + middle < 10_000
    assert oldest > 100_000


@pytest.mark.usefixtures("_nothing_is_frozen")
def test_objects_that_a_program_froze_stay_frozen() -> None:
    mine: list[int] = []
    gc.freeze()
    for _ in range(2):
        made_in_compilation()
        assert not any(x is mine for x in gc.get_objects())


@pytest.mark.usefixtures("_nothing_is_frozen")
def test_frozen_objects_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count them takes time for each."""
    counts: list[int] = []

    def get_freeze_count() -> int:
        counts.append(1_000_000)
        return counts[-1]

    monkeypatch.setattr(gc, "get_freeze_count", get_freeze_count)
    for _ in range(3):
        with settings_for_compiling():
            pass
    assert len(counts) == 1


def test_cycles_of_a_compilation_are_collected() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    with settings_for_compiling():
        gone = weakref.ref(Cycle())
    gc.collect()
    assert gone() is None
