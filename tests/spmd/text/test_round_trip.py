"""parse(print(m)) is m, and JAX's own text comes back byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from same_module import assert_same_module
from strategies import generate

import spmd
from spmd.text.parser import parse_module
from spmd.text.printer import print_instruction, print_module
from tests.paths import CASES

MODULES = sorted(CASES.glob("*/*.hlo"))


def case_id(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_there_are_modules() -> None:
    assert MODULES


@pytest.mark.parametrize("path", MODULES, ids=case_id)
def test_text_of_jax_and_xla_comes_back_byte_for_byte(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert print_module(spmd.load(path), as_dump="ENTRY %" in text).rstrip() == text.rstrip()


@pytest.mark.parametrize("as_dump", [False, True], ids=["default", "dump"])
@pytest.mark.parametrize("path", MODULES, ids=case_id)
def test_printed_module_is_the_module(path: Path, as_dump: bool) -> None:
    module = spmd.load(path)
    assert_same_module(parse_module(print_module(module, as_dump=as_dump)), module)


def test_constants_and_annotations_come_back() -> None:
    text = """HloModule m

ENTRY e {
  a = f32[2,6]{1,0} constant({ { 1, 2, 3, 4, 5, 6 }, { 1, 2, 3, 4, 5, 6 } }), metadata={op_name="x"}
  ROOT b = f32[2,6]{1,0} negate(a), backend_config={"k":1}
}
"""
    assert print_module(parse_module(text)) == text


def test_one_instruction_prints_alone() -> None:
    module = spmd.parse(
        "HloModule m\n\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} negate(a)\n}\n"
    )
    root = module.entry.root
    assert print_instruction(root) == "b = f32[2]{0} negate(a)"


def test_file_tables_and_thread_come_back() -> None:
    text = """HloModule m, is_scheduled=true, entry_computation_layout={()->f32[]}, replica_count=2, num_partitions=4

FileNames
1 "a \\"b\\".py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


f {
  ROOT x = f32[] constant(1)
}, execution_thread="host"

ENTRY e {
  ROOT c = f32[] call(), to_apply=f, metadata={op_name="q" stack_frame_id=1}
}
"""
    module = parse_module(text)
    assert print_module(module) == text
    assert [title for title, _ in module.file_tables] == [
        "FileNames",
        "FunctionNames",
        "FileLocations",
        "StackFrames",
    ]
    assert module.computations[0].execution_thread == "host"


@pytest.mark.parametrize("seed", range(30))
def test_modules_built_in_memory_come_back(seed: int) -> None:
    module = generate(seed).module
    assert_same_module(parse_module(print_module(module)), module)
