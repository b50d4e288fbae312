"""Device programs in saved executables: the same thunks, used only where they are trusted and of this machine."""

from __future__ import annotations

import json
import random
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest

import runtime.program.records
import runtime.program.thunks
import spmd
from runtime.executable import Executable
from runtime.program.kernel import Kernel
from runtime.program.thunks import Thunk
from runtime.saved import save_bytes
from runtime.saved_archive import SavedExecutableError, read_archive, with_program
from runtime.saved_program import load_bytes, program_bytes, program_target
from runtime.saved_records import MODULES, NotARecordError, read_records, write_records
from spmd.errors import SpmdError
from spmd.shape import PrimitiveType
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    COLLECTIVES,
    assert_same,
    compiled,
    random_inputs,
)

TEXTS = {**ALIASING, "collectives": COLLECTIVES, "asynchronous": ASYNC_COLLECTIVES}
SCALED = "HloModule scaled\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] {OP}(x, x)\n}\n"


def scaled(operation: str) -> Executable:
    return spmd.compile(spmd.parse(SCALED.replace("{OP}", operation)))


def is_from_thunks(executable: Executable) -> bool:
    """Return whether the program was loaded without its module, which would say what aliases."""
    return executable.source._aliases is not None


@pytest.mark.parametrize("name", TEXTS)
def test_trusted_thunks_are_those_that_were_saved(name: str) -> None:
    executable = compiled(TEXTS[name])
    data = save_bytes(executable)
    again = load_bytes(data, trusted=True)
    assert is_from_thunks(again)
    assert again.program.thunks == executable.program.thunks
    assert again.program.assignment == executable.program.assignment
    assert (again.inputs, again.outputs) == (executable.inputs, executable.outputs)
    assert again.aliases == executable.aliases
    inputs = [random_inputs(executable.module, d) for d in executable.devices]
    for got, want in zip(again.run_devices(inputs), executable.run_devices(inputs), strict=True):
        assert_same(got, want)
    assert save_bytes(again) == data


def test_constants_come_back() -> None:
    text = """HloModule c
ENTRY e {
  x = f32[3] parameter(0)
  c = f32[3] constant({1, nan, -inf})
  i = s32[2] constant({5, -7})
  p = pred[] constant(true)
  y = f32[3] add(x, c)
  ROOT t = (f32[3], s32[2], pred[], f32[3]) tuple(y, i, p, c)
}
"""
    executable = spmd.compile(spmd.parse(text))
    again = load_bytes(save_bytes(executable), trusted=True)
    assert is_from_thunks(again)
    x = np.array([0.5, 1, 2], np.float32)
    for got, want in zip(again.run(x), executable.run(x), strict=True):
        assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())


def test_thunks_in_a_file_are_not_used_unless_it_is_trusted() -> None:
    """A file whose thunks compute something else than its module, which is what a planted one could be."""
    x = np.arange(8, dtype=np.float32)
    planted = with_program(save_bytes(scaled("add")), program_bytes(scaled("multiply")))
    assert load_bytes(planted).run(x)[0].tobytes() == (x + x).tobytes()
    assert load_bytes(planted, trusted=True).run(x)[0].tobytes() == (x * x).tobytes()
    assert load_bytes(planted, trusted=True, check=True).run(x)[0].tobytes() == (x + x).tobytes()


def test_thunks_of_another_machine_are_made_again() -> None:
    data = save_bytes(scaled("add"))
    program = read_archive(data, "f").program
    assert program is not None
    assert program.startswith(program_target().encode())
    for elsewhere in (b"0" * 64 + program[64:], program[:30], b""):
        loaded = load_bytes(with_program(data, elsewhere), trusted=True)
        assert not is_from_thunks(loaded)
        assert loaded.run(np.ones(8, np.float32))[0].tolist() == [2.0] * 8


def test_a_file_without_thunks_is_read_as_ever() -> None:
    data = with_program(save_bytes(scaled("add")), None)
    loaded = load_bytes(data, trusted=True)
    assert not is_from_thunks(loaded)
    assert loaded.run(np.ones(8, np.float32))[0].tolist() == [2.0] * 8


def test_a_program_that_the_evaluator_helps_with_is_saved_without_thunks() -> None:
    text = """HloModule rounded
ENTRY e {
  x = f32[8] parameter(0)
  r = u32[8] parameter(1)
  ROOT y = s8[8] stochastic-convert(x, r)
}
"""
    executable = spmd.compile(spmd.parse(text))
    assert program_bytes(executable) is None
    again = load_bytes(save_bytes(executable), trusted=True)
    inputs = np.linspace(0, 9, 8, dtype=np.float32), np.arange(8, dtype=np.uint32) << 28
    assert again.run(*inputs)[0].tobytes() == executable.run(*inputs)[0].tobytes()


def test_the_module_of_trusted_thunks_is_verified_when_it_is_asked_for() -> None:
    archive = read_archive(save_bytes(scaled("add")), "f")
    assert archive.program is not None
    data = with_program(save_bytes(scaled("add")), archive.program)
    assert load_bytes(data, "f", trusted=True).module.entry.root.name == "y"
    damaged = data.replace(b"scaled", b"\xff\xffaled")
    with pytest.raises(SpmdError):
        _ = load_bytes(damaged, "f", trusted=True).module


def test_damaged_programs_end_in_one_readable_error() -> None:
    data = save_bytes(compiled(TEXTS["collectives"]))
    program = read_archive(data, "f").program
    assert program is not None
    rng, refused = random.Random(0), []
    for _ in range(300):
        changed = bytearray(program)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(64, len(changed))] = rng.randrange(256)
        try:
            load_bytes(with_program(data, bytes(changed)), "f", trusted=True)
        except SpmdError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert all(message.startswith("f: not a saved program: ") for message in refused)
    with pytest.raises(SavedExecutableError, match="f: not a saved program: "):
        load_bytes(with_program(data, program[:-20]), "f", trusted=True)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (3, "must have types and a value"),
        ({"types": {}, "value": 1}, "must have types and a value"),
        ({"types": [["os", "system", []]], "value": 1}, "there is no record .'os'"),
        ({"types": [["runtime.program.strides", "dense_strides", []]], "value": 1}, "no record"),
        ({"types": [["runtime.program.strides", "dataclass", []]], "value": 1}, "no record"),
        ({"types": [["runtime.program.strides", "PrimitiveType", []]], "value": 1}, "no record"),
        ({"types": [["spmd.shape", "Layout", ["suffix"]]], "value": 1}, "other fields"),
        ({"types": [["spmd.shape", "PrimitiveType", []]], "value": {"0": "F33"}}, "PrimitiveType"),
        ({"types": [["spmd.shape", "PrimitiveType", []]], "value": {"0": "_NUMPY"}}, "F33|no Prim"),
        ({"types": [["spmd.shape", "PrimitiveType", []]], "value": {"1": "F32"}}, "no record"),
        ({"types": [], "value": {}}, "no record"),
        ({"types": [], "value": {"slice": [1]}}, "no record"),
        (
            {
                "types": [["spmd.shape", "Layout", ["minor_to_major", "suffix"]]],
                "value": {"0": [1]},
            },
            "Lay",
        ),
    ],
)
def test_what_is_no_record_is_refused(found: object, message: str) -> None:
    with pytest.raises(SavedExecutableError, match=message):
        read_records(found)


def test_deep_nesting_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SavedExecutableError, match="too deep"):
        read_records({"types": [], "value": value})


def test_records_come_back_as_they_were() -> None:
    value = (1, -2.5, "t", None, True, (), slice(0, None, -1), PrimitiveType.BF16, float("inf"))
    assert read_records(json.loads(json.dumps(write_records(value)))) == value
    with pytest.raises(NotARecordError, match="pathlib"):
        write_records((Path("f"),))


def test_all_kernels_and_thunks_have_a_form_but_those_of_instructions() -> None:
    for package in (runtime.program.records, runtime.program.thunks):
        for one in iter_modules(package.__path__, package.__name__ + "."):
            import_module(one.name)
    kinds = [*_below(Kernel), *_below(Thunk)]
    kinds = [
        kind for kind in kinds if not kind.__module__.startswith(("tests", "test_", "runtime.gpu"))
    ]
    missing = {kind.__name__ for kind in kinds if kind.__module__ not in MODULES}
    assert missing == {"AttentionKernel", "RaggedDotKernel", "ReferenceKernel"}
    assert all(name in sys.modules or import_module(name) for name in MODULES)


def _below(kind: type) -> list[type]:
    return [one for sub in kind.__subclasses__() for one in (sub, *_below(sub))]
