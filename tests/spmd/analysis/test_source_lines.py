"""Places of instructions in the traced program: stated, looked up in stack frames, or the op name alone."""

from __future__ import annotations

import pytest

import spmd
from spmd.analysis.source_lines import SourceLines

MODULE = """HloModule m

FileNames
1 "model.py"
2 "layers.py"

FunctionNames
1 "loss"
2 "dense"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=4 end_column=20}
2 {file_name_id=2 function_name_id=2 line=30 end_line=31 column=8 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY main {
  stated = f32[4] parameter(0), metadata={op_name="x" source_file="train.py" source_line=7 stack_frame_id=2}
  inner = f32[4] negate(stated), metadata={op_name="jit(loss)/neg" stack_frame_id=2}
  outer = f32[4] sine(inner), metadata={op_name="jit(loss)/sin" stack_frame_id=1}
  lost = f32[4] cosine(outer), metadata={op_name="jit(loss)/cos" stack_frame_id=9}
  ROOT bare = f32[4] tanh(lost)
}
"""


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("stated", "train.py:7"),
        ("inner", "layers.py:30"),
        ("outer", "model.py:12"),
        ("lost", "jit(loss)/cos"),
        ("bare", ""),
    ],
)
def test_place_of_an_instruction(name: str, place: str) -> None:
    module = spmd.parse(MODULE)
    (instruction,) = (i for i in module.entry.instructions if i.name == name)
    assert SourceLines(module).of(instruction) == place
