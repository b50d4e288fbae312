"""Registries that import a module when one of its keys is asked for know all keys, each of the right module."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import pytest

import runtime.gpu.codegen.copy  # noqa: F401 - registers a form
import spmd.passes.algebraic_simplifier  # noqa: F401 - fills the table of identities
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from runtime.emit.elementwise import is_elementwise
from runtime.gpu.codegen.emitters import EMITTERS, kernel_emitter
from runtime.gpu.libraries.library_emitters import LIBRARY_EMITTERS, through_library
from runtime.lowering import LOWERINGS
from spmd.hlo import Opcode
from spmd.passes.algebraic.rules import IDENTITIES, simplifies
from spmd.registry import Registry
from tests.paths import ROOT

#: Package that has the modules -> registries, and where they are.
REGISTRIES = {
    "runtime.emit": (("runtime.lowering", "LOWERINGS"),),
    "spmd.ops": (("spmd.ops.opdef", "OPS"),),
    "spmd.proto.attrs_proto": (("spmd.proto.attrs_proto.registry", "ATTRS_PROTO"),),
    "runtime.codegen.elements": (
        ("runtime.codegen.elements.registry", "BODIES"),
        ("runtime.codegen.elements.registry", "FLOAT_FUNCTIONS"),
        ("runtime.codegen.elements.complex_arithmetic", "COMPLEX_FUNCTIONS"),
    ),
    "runtime.cpu.kernels": (("runtime.program.kernel", "CPU_KERNELS"),),
}

#: Prints, for each registry, keys that are in no module that is named, and keys that a named module does not have.
PROGRAM = """
import importlib, json, pkgutil, sys
package, *places = sys.argv[1:]
found = importlib.import_module(package)
registries = [getattr(importlib.import_module(p.partition(":")[0]), p.partition(":")[2]) for p in places]
named = [dict(registry._modules) for registry in registries]
for one in pkgutil.walk_packages(found.__path__, package + "."):
    importlib.import_module(one.name)
differ = []
for registry, modules in zip(registries, named):
    keys = set(registry._entries)
    there = {key for key in keys if key not in modules}
    differ.append([sorted(map(str, there)), sorted(map(str, modules.keys() - keys))])
print(json.dumps(differ))
"""


#: The registry that a module fills which a test writes, and the events by which the two wait for each other.
LATER: Registry[str, Callable[[], int]] = Registry("later values")
BEGUN, GO_ON = Event(), Event()


@pytest.mark.parametrize("package", REGISTRIES)
def test_modules_have_the_keys_that_they_are_named_for(package: str) -> None:
    places = [f"{module}:{name}" for module, name in REGISTRIES[package]]
    command = (sys.executable, "-c", PROGRAM, package, *places)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    for (_, name), (unnamed, absent) in zip(
        REGISTRIES[package], json.loads(done.stdout), strict=True
    ):
        assert absent == [] or name == "FLOAT_FUNCTIONS"
        assert set(unnamed) <= ALWAYS_THERE


def test_functions_of_floats_have_the_opcodes_that_their_families_are_named_for() -> None:
    """Not every function has a form in every format.

    Those without one in a narrow format are computed in a wider one.
    """
    FLOAT_FUNCTIONS.import_all()
    named = {opcode for opcode, _ in FLOAT_FUNCTIONS}
    assert {x for x, fmt in FLOAT_FUNCTIONS if FLOAT_FUNCTIONS.get((x, fmt)) is not None} == named


#: Functions of complex numbers that stand beside their registry.
ALWAYS_THERE = {
    "abs",
    "add",
    "complex",
    "divide",
    "imag",
    "multiply",
    "negate",
    "real",
    "subtract",
}


def test_elementwise_opcodes_are_lowered_as_such() -> None:
    named = set(LOWERINGS.keys_of("runtime.emit.elementwise"))
    assert named == {opcode for opcode in Opcode if is_elementwise(opcode)}


def test_a_module_is_imported_when_one_of_its_keys_is_asked_for() -> None:
    registry: Registry[str, int] = Registry("numbers")
    registry.add("one", 1)
    registry.import_at_need({"no.such.module": ("two", "three")})
    assert registry["one"] == 1
    assert list(registry) == ["two", "three", "one"]
    assert len(registry) == 3
    assert "two" in registry
    assert "four" not in registry
    assert registry.get("four") is None
    with pytest.raises(ModuleNotFoundError):
        registry.get("two")


def test_another_thread_waits_for_the_end_of_a_modules_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that a module registers may use what is defined below it."""
    name = "module_that_registers_early"
    (tmp_path / f"{name}.py").write_text(
        "from tests.spmd.test_registry import BEGUN, GO_ON, LATER\n"
        "LATER.add('value', lambda: defined_below)\n"
        "BEGUN.set()\n"
        "assert GO_ON.wait(30)\n"
        "defined_below = 7\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    LATER.import_at_need({name: ("value",)})
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: LATER["value"]())
        assert BEGUN.wait(30)
        second = threads.submit(lambda: LATER["value"]())
        assert not wait([second], timeout=0.2).done
        GO_ON.set()
        assert (first.result(30), second.result(30)) == (7, 7)


def test_a_second_entry_is_refused() -> None:
    """This holds for every table that is filled when modules are imported."""
    registry: Registry[str, int] = Registry("numbers")
    registry.add("one", 1)
    with pytest.raises(ValueError, match="numbers: one is registered twice"):
        registry.add("one", 2)
    (identity, *_) = IDENTITIES[Opcode.MULTIPLY]
    with pytest.raises(ValueError, match="registered twice"):
        simplifies(Opcode.MULTIPLY)(identity)
    kernel = next(iter(EMITTERS))
    with pytest.raises(ValueError, match=r"GPU form: .* is registered twice"):
        kernel_emitter(kernel)(lambda _, __: None)
    with pytest.raises(ValueError, match=r"library form: .* is registered twice"):
        through_library(next(iter(LIBRARY_EMITTERS)))(lambda _, __, ___: None)
