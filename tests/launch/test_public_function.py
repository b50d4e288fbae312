"""Mistakes that users of the Python interface make, answered with what to type instead."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import spmd

COMPILE: Any = spmd.compile
MODULE = spmd.parse("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("step.hlo", r"found str: spmd.compile\(spmd.load\('step.hlo'\)\) reads a file"),
        (Path("step.hlo"), r"spmd.load\('step.hlo'\)"),
        ("HloModule m\n\nENTRY e {}", "found str: spmd.parse makes one of text"),
        (lambda x: x, "found function: spmd.from_jax makes one"),
        (None, "found NoneType: spmd.load, spmd.parse and spmd.from_jax"),
    ],
)
def test_what_is_no_module(given: object, message: str) -> None:
    with pytest.raises(TypeError, match="^spmd.compile takes an HloModule, .*" + message):
        COMPILE(given)


def test_options_that_are_mistyped() -> None:
    with pytest.raises(
        TypeError, match=r"^spmd.compile has no option 'device'; did you mean devices"
    ):
        COMPILE(MODULE, device=2)
    with pytest.raises(TypeError, match=r"^spmd.compile has no option 'xyz'"):
        COMPILE(MODULE, xyz=2)
    with pytest.raises(TypeError, match=r"^spmd.load_executable has no option 'time_out'; did you"):
        spmd.load_executable("f.spmdx", time_out=3)  # type: ignore[call-arg]
    assert list(inspect.signature(spmd.compile).parameters)[:2] == ["module", "devices"]
    assert spmd.compile(MODULE).num_devices == 1
