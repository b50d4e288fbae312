"""Records as JSON: frozen dataclasses, enumerations, tuples, slices and plain values, of classes that are listed here.

A value is a number, a text, true, false or null as itself; a tuple is a list; a record is an object with one key, the
number of its class in ``types``, and the list of its fields; a member of an enumeration has its name instead:

    {"types": [["runtime.program.strides", "StridedView", ["element_type", "dims", ..]], ..], "value": {"0": [..]}}

Nothing else is read, and no module but the listed ones is imported. What is read has the classes and fields of this
version, but the values of fields are not checked: they come from a file that the user trusts, or from the user's own
cache.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any

from runtime.saved_archive import SavedExecutableError

#: Modules of the records of device programs. A module is imported if a program has one of its records.
MODULES = frozenset(
    {
        "collectives.communicator.kinds.all_gather",
        "collectives.communicator.kinds.all_reduce",
        "collectives.communicator.kinds.all_to_all",
        "collectives.communicator.kinds.collective_broadcast",
        "collectives.communicator.kinds.collective_permute",
        "collectives.communicator.kinds.op",
        "collectives.communicator.kinds.ragged_all_to_all",
        "collectives.communicator.kinds.reduce_scatter",
        "runtime.arrays.host_feed",
        "runtime.arrays.sharded_arrays",
        "runtime.buffers.types",
        "runtime.program.blocks",
        "runtime.program.records.convolution",
        "runtime.program.records.convolution_call",
        "runtime.program.records.copy",
        "runtime.program.records.dot",
        "runtime.program.records.fft",
        "runtime.program.records.gather_scatter",
        "runtime.program.records.linalg",
        "runtime.program.records.loop",
        "runtime.program.records.product_epilogue",
        "runtime.program.records.random_bits",
        "runtime.program.records.reduce",
        "runtime.program.records.rows",
        "runtime.program.records.sort",
        "runtime.program.scalar_program",
        "runtime.program.strides",
        "runtime.program.thunks.callback",
        "runtime.program.thunks",
        "runtime.saved_program",
        "spmd.device",
        "spmd.hlo.opcode",
        "spmd.host_callback",
        "spmd.ops.attrs",
        "spmd.ops.window",
        "spmd.shape",
        "spmd.sharding",
    }
)
_SLICE = "slice"
_PLAIN = (bool, int, float, str, type(None))


class NotARecordError(Exception):
    """Value that has no JSON form here, such as an instruction that the reference evaluator computes."""


def write_records(value: object) -> dict[str, Any]:
    """Return the JSON value of ``value``. Raises NotARecordError if it holds something else than records."""
    types: dict[type[Any], int] = {}
    written = _write(value, types)
    return {
        "types": [[kind.__module__, kind.__qualname__, _field_names(kind)] for kind in types],
        "value": written,
    }


def _write(value: object, types: dict[type[Any], int]) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return [_write(one, types) for one in value]
    if type(value) is slice:
        return {_SLICE: [value.start, value.stop, value.step]}
    kind = type(value)
    if kind.__module__ not in MODULES:
        raise NotARecordError(f"{kind.__module__}.{kind.__qualname__}")
    number = str(types.setdefault(kind, len(types)))
    if isinstance(value, Enum):
        return {number: value.name}
    if not is_dataclass(kind):
        raise NotARecordError(f"{kind.__module__}.{kind.__qualname__}")
    return {number: [_write(getattr(value, name), types) for name in _field_names(kind)]}


def _field_names(kind: type[Any]) -> list[str]:
    """Return the fields that its constructor takes; none for an enumeration."""
    return [one.name for one in fields(kind) if one.init] if is_dataclass(kind) else []


def read_records(found: object) -> Any:
    """Return the value. Raises SavedExecutableError for what ``write_records`` of this version does not write."""
    if not isinstance(found, dict) or not isinstance(types := found.get("types"), list):
        raise SavedExecutableError("records must have types and a value")
    try:
        return _Reader([_kind(one) for one in types]).read(found.get("value"))
    except RecursionError:
        raise SavedExecutableError("records are nested too deep") from None


def _kind(found: object) -> tuple[type[Any], list[str]]:
    match found:
        case [str(module), str(name), list(names)] if module in MODULES:
            kind = getattr(import_module(module), name, None)
            if isinstance(kind, type) and kind.__module__ == module:
                if (issubclass(kind, Enum) or is_dataclass(kind)) and _field_names(kind) == names:
                    return kind, names
                raise SavedExecutableError(f"{name} has other fields in this version")
    raise SavedExecutableError(f"there is no record {str(found)[:80]}")


class _Reader:
    def __init__(self, kinds: list[tuple[type[Any], list[str]]]) -> None:
        self._kinds = {str(number): kind for number, kind in enumerate(kinds)}

    def read(self, found: Any) -> Any:
        if type(found) in _PLAIN:
            return found
        if type(found) is list:
            return tuple([self.read(one) for one in found])
        if type(found) is dict and len(found) == 1:
            ((key, content),) = found.items()
            if key == _SLICE and type(content) is list and len(content) == 3:
                return slice(*map(self.read, content))
            if key in self._kinds:
                return self._record(*self._kinds[key], content)
        raise SavedExecutableError(f"no record: {str(found)[:80]}")

    def _record(self, kind: type[Any], names: list[str], content: Any) -> Any:
        if issubclass(kind, Enum):
            if type(content) is str and content in kind.__members__:
                return kind[content]
        elif type(content) is list and len(content) == len(names):
            try:
                return kind(*map(self.read, content))
            except TypeError as error:  # a record computes a value from fields of another type
                raise SavedExecutableError(f"no {kind.__name__}: {error}") from None
        raise SavedExecutableError(f"no {kind.__name__}: {str(content)[:80]}")
