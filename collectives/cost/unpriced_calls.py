"""Custom calls whose cost nothing states: found in a module before it is compiled, in HLO text before it is parsed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from collectives.cost.custom_calls import has_rule
from collectives.cost.estimator import CostError
from spmd.analysis.source_lines import SourceLines
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.library_calls import FAMILIES  # noqa: F401 - fills the table
from spmd.library_calls.registry import LIBRARY_CALLS
from spmd.ops.custom_call import (
    DYNAMIC_REGION,
    PAD_TO_STATIC,
    SLICE_TO_DYNAMIC,
    custom_call_target,
)

#: Targets that the compiler replaces by other operations before anything is priced.
_REPLACED = frozenset({DYNAMIC_REGION, PAD_TO_STATIC, SLICE_TO_DYNAMIC})

#: Target of a custom call in HLO text. One with escapes is left to the parser.
_TARGET = re.compile(rb'custom_call_target="([^"\\\n]+)"')
_OPCODE = b"custom-call("
_COMMENT = b"//"
_OP_NAME = re.compile(rb'op_name="((?:[^"\\\n]|\\.)*)"')
_SOURCE = re.compile(rb'source_file="((?:[^"\\\n]|\\.)*)" source_line=(\d+)')

#: Returns where a custom call is in the traced program: its op_name and its source line, as far as they are stated.
_Location: TypeAlias = Callable[[], str]


def require_costs(module: HloModule, given: Collection[str]) -> None:
    """Raise CostError if ``module`` has custom calls without a cost. ``given``: targets whose costs the user states."""
    _require(_calls(module), given)


def require_costs_in_text(data: bytes, given: Collection[str]) -> None:
    """Raise CostError if ``data`` is HLO text that has custom calls without a cost; it is scanned, not parsed.

    Custom calls that the scan does not find, such as those of a serialized module, are left to ``require_costs``.
    """
    _require(_calls_in_text(data), given)


def _calls(module: HloModule) -> Iterator[tuple[str, _Location]]:
    lines = SourceLines(module)
    for computation in module.computations:
        for call in computation.with_opcode(Opcode.CUSTOM_CALL):
            yield custom_call_target(call), partial(_location, call, lines)


def _location(call: HloInstruction, lines: SourceLines) -> str:
    return _joined(call.annotations.metadata.op_name, lines.of(call))


def _calls_in_text(data: bytes) -> Iterator[tuple[str, _Location]]:
    end = 0
    for target in _TARGET.finditer(data):
        # Each search ends at the previous target: the time is linear also for a text of one line.
        opcode = data.rfind(_OPCODE, end, target.start())
        line = data.rfind(b"\n", end, opcode) + 1 or end
        if opcode >= 0 and _COMMENT not in data[line:opcode]:
            yield _text(target[1]), partial(_location_in_text, data, target.end())
        end = target.end()


def _location_in_text(data: bytes, begin: int) -> str:
    """Return the location of the custom call whose target ends at ``begin``: what the rest of its line states."""
    end = data.find(b"\n", begin)
    rest = data[begin : end if end >= 0 else len(data)]
    name, source = _OP_NAME.search(rest), _SOURCE.search(rest)
    line = f"{_text(source[1])}:{_text(source[2])}" if source else ""
    return _joined(_text(name[1]) if name else "", line)


def _joined(op_name: str, line: str) -> str:
    return " at ".join(dict.fromkeys(filter(None, (op_name, line))))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _require(calls: Iterable[tuple[str, _Location]], given: Collection[str]) -> None:
    """Raise CostError with a line for each target of ``calls`` that has no cost."""
    count: dict[str, int] = {}
    first: dict[str, _Location] = {}
    for target, location in calls:
        count[target] = count.get(target, 0) + 1
        first.setdefault(target, location)
    unknown = [target for target in count if target not in given and not _is_known(target)]
    if unknown:
        raise CostError("\n".join(_line(one, count[one], first[one]()) for one in unknown))


def _is_known(target: str) -> bool:
    return has_rule(target) or target in _REPLACED or LIBRARY_CALLS.get(target) is not None


def _line(target: str, count: int, location: str) -> str:
    calls = "1 call" if count == 1 else f"{count} calls"
    where = f", {'at' if count == 1 else 'the first at'} {location}" if location else ""
    option = shlex.quote(f"{target}=F.json")
    return (
        f"custom call {target!r}: its cost is unknown ({calls}{where}); state it by --cost {option}"
    )
