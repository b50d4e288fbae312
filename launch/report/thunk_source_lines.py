"""Description of thunk number n of an executable, in terms of the user's program."""

from __future__ import annotations

from runtime.executable import Executable
from runtime.program.thunks import traverse


def explain_thunk(executable: Executable, number: int) -> str:
    """Return the thunk's instruction with its opcode, op_name and source line, as far as the module states them.

    ``number``: in the order of ``traverse``. For messages: each call searches all thunks.
    """
    for n, thunk in enumerate(traverse(executable.program.thunks)):
        if n == number:
            return f"thunk {number}, {thunk.name}{_source_location(executable, thunk.name)}"
    return f"thunk {number}"


def _source_location(executable: Executable, name: str) -> str:
    # Deferred: source lines are needed only after a wait without success.
    from spmd.analysis.source_lines import SourceLines

    module = executable.module
    for instruction in module.all_instructions():
        if instruction.name == name:
            op_name = instruction.annotations.metadata.op_name
            line = SourceLines(module).of(instruction)
            said = dict.fromkeys(filter(None, (f'op_name="{op_name}"' if op_name else "", line)))
            found = [text for text in said if text != op_name]
            return f" = {instruction.opcode.value}({', '.join(found)})"
    return ""
