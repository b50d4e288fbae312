"""Read and write machine descriptions: JSON that may come from anyone, so that every number is checked.

{"format": 1, "name": "...", "kind": "cpu", "source": "...", "units": 1,
 "levels": [{"name": "L1", "bytes": 49152, "bandwidth": 1.0e11}, ...],
 "rates": {"f32": {"matrix": 9.0e10, "simple": 1.0e10, "transcendental": 1.0e9}, ...},
 "kernel_seconds": 1e-7, "row_seconds": 1e-8, "thunk_seconds": 3e-7,
 "exchanges": [{"name": "shared memory", "devices": 8, "bandwidth": 1.0e10, "latency": 1e-6}]}

What may be left out, and every field's meaning: docs/machines.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from spmd.errors import SpmdError
from spmd.hlo.opcode import Opcode
from spmd.machine.convolutions import ConvolutionClass, ConvolutionForm
from spmd.machine.description import (
    Attained,
    Exchange,
    MachineDescription,
    MemoryLevel,
    Rates,
)
from spmd.machine.products import ProductClass
from spmd.shape import PrimitiveType

FORMAT = 1
MAX_BYTES = 1 << 16
MAX_ENTRIES = 32
MAX_TEXT = 2_000
KINDS = ("cpu", "gpu")

#: Smallest and largest rate (per second), time (seconds), size (bytes) and count that any machine could have.
RATE = (1.0, 1e24)
SECONDS = (0.0, 10.0)
SIZE = (1, 1 << 60)
COUNT = (1, 1 << 24)
FACTOR = (0.0, 1e3)
FRACTION = (1e-3, 1.0)
SHARE = (0.0, 1.0)

_NAMED = {kind.value: kind for kind in PrimitiveType}
_OPCODES = {opcode.value: opcode for opcode in Opcode}
_PRODUCT_SIZES = (
    "lines",
    "depth",
    "multiplications",
    "line_block",
    "depth_block",
    "columns",
    "deep",
)
_PRODUCT_SECONDS = (
    *("call_seconds", "multiply_seconds"),
    *("lhs_seconds", "rhs_seconds", "result_seconds", "added_seconds"),
    *("lhs_turned_seconds", "rhs_turned_seconds"),
)
_PRODUCT_FACTORS = ("lhs_far", "rhs_far", "result_far", "lhs_turned_far", "rhs_turned_far")
Item = TypeVar("Item")
_ATTAINED = ("matrix", "memory", "attention")
_FORMS = {form.value: form for form in ConvolutionForm}
_CONVOLUTION_SECONDS = (
    *("call_seconds", "multiply_seconds"),
    *("input_seconds", "kernel_seconds", "result_seconds"),
)


class MachineError(SpmdError):
    """A machine description that cannot be read, or says what no machine could do."""


def read_machine(data: bytes, where: str) -> MachineDescription:
    """The description in ``data``; MachineError names ``where`` and the field that is wrong."""
    if len(data) > MAX_BYTES:
        raise MachineError(
            f"{where}: {len(data)} bytes, more than {MAX_BYTES} for a machine description"
        )
    try:
        found = json.loads(data, object_pairs_hook=_without_repeats, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        raise MachineError(f"{where}: no machine description in JSON: {reason}") from error
    return _machine(_Fields(found, where))


def write_machine(machine: MachineDescription) -> str:
    """JSON that ``read_machine`` reads as an equal description."""
    fields = {
        "format": FORMAT,
        "name": machine.name,
        "kind": machine.kind,
        "source": machine.source,
        "units": machine.units,
        "levels": [
            {"name": level.name, "bytes": level.size, "bandwidth": level.bandwidth}
            for level in machine.levels
        ],
        "rates": {
            kind.value: {
                "matrix": rates.matrix,
                "simple": rates.simple,
                "transcendental": rates.transcendental,
                **(
                    {"functions": {op.value: rate for op, rate in rates.functions}}
                    if rates.functions
                    else {}
                ),
            }
            for kind, rates in machine.rates
        },
        "kernel_seconds": machine.kernel_seconds,
        "row_seconds": machine.row_seconds,
        "thunk_seconds": machine.thunk_seconds,
        "exchanges": [
            {
                "name": exchange.name,
                "devices": exchange.devices,
                "bandwidth": exchange.bandwidth,
                "latency": exchange.latency,
                "far": exchange.far,
                "ports": exchange.ports,
                "attained": exchange.attained,
                "busy": exchange.busy,
            }
            for exchange in machine.exchanges
        ],
        "attained": {name: getattr(machine.attained, name) for name in _ATTAINED},
        "program_bytes": machine.program_bytes,
    }
    if machine.products:
        fields["products"] = [_product_fields(one) for one in machine.products]
    if machine.convolutions:
        fields["convolutions"] = [_convolution_fields(one) for one in machine.convolutions]
    return json.dumps(fields, indent=1) + "\n"


def _product_fields(one: ProductClass) -> dict[str, object]:
    names = (*_PRODUCT_SIZES, *_PRODUCT_SECONDS, *_PRODUCT_FACTORS)
    numbers = {name: getattr(one, name) for name in names}
    return {"types": [kind.value for kind in one.types], **numbers}


def _convolution_fields(one: ConvolutionClass) -> dict[str, object]:
    numbers = {name: getattr(one, name) for name in (*_CONVOLUTION_SECONDS, "far")}
    return {"form": one.form.value, "type": one.kind.value, **numbers}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no rate")


class _Fields:
    """A JSON object whose fields are taken out one by one; what is left at the end is unknown."""

    def __init__(self, found: object, where: str) -> None:
        if not isinstance(found, dict):
            raise MachineError(f"{where}: expected an object, found {_shown(found)}")
        self.where = where
        self._left = dict(found)

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise MachineError(f"{self.where}: field {name!r} is missing")
        return self._left.pop(name)

    def has(self, name: str) -> bool:
        return name in self._left

    def done(self) -> None:
        if self._left:
            raise MachineError(f"{self.where}: unknown field {_shown(sorted(self._left)[0])}")

    @property
    def names(self) -> tuple[str, ...]:
        """Of what has not been taken."""
        return tuple(self._left)

    def text(self, name: str) -> str:
        found = self.take(name)
        if not isinstance(found, str) or not 0 < len(found) <= MAX_TEXT:
            raise MachineError(
                f"{self.where}: {name} must be a text of 1 to {MAX_TEXT} characters, found {_shown(found)}"
            )
        return found

    def number(self, name: str, bounds: tuple[float, float], default: float | None = None) -> float:
        """Within ``bounds``; ``default``, where there is one, for a field that is left out."""
        if default is not None and not self.has(name):
            return default
        found = self.take(name)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise MachineError(f"{self.where}: {name} must be a number, found {_shown(found)}")
        low, high = bounds
        # Compared before it is made a float: an integer may be too long for one.
        if not low <= found <= high or not math.isfinite(found):
            raise MachineError(
                f"{self.where}: {name} must be from {low:g} to {high:g}, found {_shown(found)}"
            )
        return float(found)

    def whole(self, name: str, bounds: tuple[int, int], default: int | None = None) -> int:
        found = self.number(name, bounds, default)
        if found != int(found):
            raise MachineError(f"{self.where}: {name} must be a whole number, found {found:g}")
        return int(found)

    def items(self, name: str, read: Callable[[_Fields], Item], least: int = 0) -> tuple[Item, ...]:
        found = self.take(name)
        if not isinstance(found, list) or not least <= len(found) <= MAX_ENTRIES:
            raise MachineError(
                f"{self.where}: {name} must be a list of {least} to {MAX_ENTRIES}, found {_shown(found)}"
            )
        return tuple(
            read(_Fields(item, f"{self.where}: {name}[{n}]")) for n, item in enumerate(found)
        )


def _machine(fields: _Fields) -> MachineDescription:
    version = fields.whole("format", COUNT)
    if version != FORMAT:
        raise MachineError(f"{fields.where}: format {version}; this version reads {FORMAT}")
    machine = MachineDescription(
        name=fields.text("name"),
        kind=fields.text("kind"),
        source=fields.text("source"),
        units=fields.whole("units", COUNT),
        levels=fields.items("levels", _level, 1),
        rates=_rates_table(fields.take("rates"), fields.where),
        kernel_seconds=fields.number("kernel_seconds", SECONDS),
        row_seconds=fields.number("row_seconds", SECONDS),
        thunk_seconds=fields.number("thunk_seconds", SECONDS),
        exchanges=fields.items("exchanges", _exchange),
        products=fields.items("products", _product) if fields.has("products") else (),
        convolutions=(
            fields.items("convolutions", _convolution) if fields.has("convolutions") else ()
        ),
        attained=(
            _attained(fields.take("attained"), fields.where)
            if fields.has("attained")
            else Attained()
        ),
        program_bytes=fields.whole("program_bytes", (0, SIZE[1]), 0),
    )
    fields.done()
    if machine.program_bytes > machine.levels[-1].size:
        raise MachineError(f"{fields.where}: program_bytes are more than the memory has")
    if machine.kind not in KINDS:
        raise MachineError(
            f"{fields.where}: kind must be {' or '.join(KINDS)}, found {_shown(machine.kind)}"
        )
    _require_growing(fields.where, "levels", "bytes", [level.size for level in machine.levels])
    _require_growing(
        fields.where, "exchanges", "devices", [way.devices for way in machine.exchanges]
    )
    return machine


def _level(fields: _Fields) -> MemoryLevel:
    level = MemoryLevel(
        fields.text("name"), fields.whole("bytes", SIZE), fields.number("bandwidth", RATE)
    )
    fields.done()
    return level


def _exchange(fields: _Fields) -> Exchange:
    exchange = Exchange(
        fields.text("name"),
        fields.whole("devices", COUNT),
        fields.number("bandwidth", RATE),
        fields.number("latency", SECONDS),
        fields.number("far", FACTOR, 0.0),
        fields.whole("ports", (0, COUNT[1]), 0),
        fields.number("attained", FRACTION, 1.0),
        fields.number("busy", SHARE, 1.0),
    )
    fields.done()
    return exchange


def _attained(found: object, where: str) -> Attained:
    fields = _Fields(found, f"{where}: attained")
    seen = Attained(*(fields.number(name, FRACTION, 1.0) for name in _ATTAINED))
    fields.done()
    return seen


def _rates_table(found: object, where: str) -> tuple[tuple[PrimitiveType, Rates], ...]:
    if not isinstance(found, dict) or PrimitiveType.F32.value not in found:
        raise MachineError(f"{where}: rates must be an object by element type, f32 among them")
    table = []
    for name, entry in found.items():
        if name not in _NAMED:
            raise MachineError(f"{where}: rates: no element type is named {_shown(name)}")
        fields = _Fields(entry, f"{where}: rates.{name}")
        matrix, simple, exp = (
            fields.number(n, RATE) for n in ("matrix", "simple", "transcendental")
        )
        rates = Rates(matrix, simple, exp)
        if fields.has("functions"):
            where_functions = f"{where}: rates.{name}.functions"
            rates = replace(rates, functions=_functions(fields.take("functions"), where_functions))
        fields.done()
        table.append((_NAMED[name], rates))
    return tuple(table)


def _functions(found: object, where: str) -> tuple[tuple[Opcode, float], ...]:
    fields = _Fields(found, where)
    rates = []
    for name in sorted(fields.names):
        if name not in _OPCODES:
            raise MachineError(f"{where}: no operation is named {_shown(name)}")
        rates.append((_OPCODES[name], fields.number(name, RATE)))
    return tuple(rates)


def _product(fields: _Fields) -> ProductClass:
    found = fields.take("types")
    kinds = [_NAMED[name] for name in found if name in _NAMED] if isinstance(found, list) else []
    if len(kinds) != 3 or not isinstance(found, list) or len(found) != 3:
        raise MachineError(
            f"{fields.where}: types must be three element types, found {_shown(found)}"
        )
    sizes = [fields.whole(name, COUNT) for name in _PRODUCT_SIZES]
    seconds = [fields.number(name, SECONDS) for name in _PRODUCT_SECONDS]
    factors = [fields.number(name, FACTOR) for name in _PRODUCT_FACTORS]
    fields.done()
    return ProductClass(*kinds, *sizes, *seconds, *factors)  # type: ignore[arg-type]


def _convolution(fields: _Fields) -> ConvolutionClass:
    form = fields.text("form")
    if form not in _FORMS:
        raise MachineError(f"{fields.where}: form must be {', '.join(_FORMS)}, found {form!r}")
    name = fields.text("type")
    if name not in _NAMED:
        raise MachineError(f"{fields.where}: no element type is named {_shown(name)}")
    seconds = [fields.number(name, SECONDS) for name in _CONVOLUTION_SECONDS]
    far = fields.number("far", FACTOR)
    fields.done()
    return replace(ConvolutionClass(_FORMS[form], _NAMED[name], *seconds), far=far)


def _require_growing(where: str, name: str, field: str, sizes: Iterable[int]) -> None:
    listed = list(sizes)
    if listed != sorted(set(listed)):
        raise MachineError(f"{where}: {name} must stand in growing order of {field}")


def _shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."
