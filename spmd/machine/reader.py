"""Reader and writer of machine descriptions: untrusted JSON, of which every number is checked.

{"format": 1, "name": "...", "kind": "cpu", "source": "...", "units": 1,
 "levels": [{"name": "L1", "bytes": 49152, "bandwidth": 1.0e11}, ...],
 "rates": {"f32": {"matrix": 9.0e10, "simple": 1.0e10, "transcendental": 1.0e9}, ...},
 "kernel_seconds": 1e-7, "row_seconds": 1e-8, "thunk_seconds": 3e-7,
 "exchanges": [{"name": "shared memory", "devices": 8, "bandwidth": 1.0e10, "latency": 1e-6}]}

docs/machines.md gives the optional fields and the meaning of every field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from spmd.errors import SpmdError
from spmd.hlo.opcode import Opcode
from spmd.json_fields import JsonFields, read_fields, shown
from spmd.machine.attention_fields import attention_fields, read_attention
from spmd.machine.bounds import (
    COUNT,
    FACTOR,
    FRACTION,
    MULTIPLICATIONS,
    RATE,
    SECONDS,
    SIZE,
    SPREAD,
)
from spmd.machine.convolutions import ConvolutionAlgorithm, ConvolutionClass
from spmd.machine.description import (
    Attained,
    MachineDescription,
    MemoryLevel,
    Rates,
)
from spmd.machine.exchange_fields import exchange_fields, printable, read_exchange
from spmd.machine.products import ProductClass
from spmd.machine.tiles import Tile, TiledProducts
from spmd.shape import PrimitiveType

FORMAT = 1
MAX_BYTES = 1 << 16
KINDS = ("cpu", "gpu")

#: Limits of ``tiled.splits``: their number, and each of them.
MAX_SPLITS = 8
MAX_SPLIT = 64

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
#: Characters that a machine's name may not contain: they begin, separate and end variations.
_REFUSED = frozenset("{},")
_ATTAINED = ("matrix", "memory", "attention")
_ALGORITHMS = {algorithm.value: algorithm for algorithm in ConvolutionAlgorithm}
_CONVOLUTION_SECONDS = (
    *("call_seconds", "multiply_seconds"),
    *("input_seconds", "kernel_seconds", "result_seconds"),
)


class MachineError(SpmdError):
    """A machine description that cannot be read, or that states implausible values."""


def read_machine(data: bytes, where: str) -> MachineDescription:
    """Return the description in ``data``. Raises MachineError with ``where`` and the wrong field."""
    return _machine(read_fields(data, where, "machine description", MAX_BYTES, MachineError))


def write_machine(machine: MachineDescription) -> str:
    """Return JSON that ``read_machine`` reads as an equal description."""
    fields = {
        "format": FORMAT,
        "name": machine.name,
        "kind": machine.kind,
        "source": machine.source,
        "units": machine.units,
        "levels": [
            {
                "name": level.name,
                "bytes": level.size,
                "bandwidth": level.bandwidth,
                **({"kernel_local": 1} if level.kernel_local else {}),
            }
            for level in machine.levels
        ],
        "rates": {
            kind.value: {
                "matrix": rates.matrix,
                **({"attained": rates.attained, "source": rates.source} if rates.attained else {}),
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
        "exchanges": [exchange_fields(exchange) for exchange in machine.exchanges],
        "attained": {name: getattr(machine.attained, name) for name in _ATTAINED},
        "program_bytes": machine.program_bytes,
    }
    if machine.host_bandwidth:
        fields["host_bandwidth"] = machine.host_bandwidth
    for name in ("spread", "step_seconds", "output_seconds", "wait_seconds"):
        if getattr(machine, name):
            fields[name] = getattr(machine, name)
    if machine.products:
        fields["products"] = [_product_fields(one) for one in machine.products]
    if machine.tiled is not None:
        fields["tiled"] = _tiled_fields(machine.tiled)
    if machine.fused_attention is not None:
        fields["fused_attention"] = attention_fields(machine.fused_attention)
    if machine.convolutions:
        fields["convolutions"] = [_convolution_fields(one) for one in machine.convolutions]
    return json.dumps(fields, indent=1) + "\n"


def _product_fields(one: ProductClass) -> dict[str, object]:
    names = (*_PRODUCT_SIZES, *_PRODUCT_SECONDS, *_PRODUCT_FACTORS)
    numbers = {name: getattr(one, _product_field(name)) for name in names}
    return {"types": [kind.value for kind in one.types], **numbers}


def _product_field(key: str) -> str:
    """Return the field of ProductClass that the file has at ``key``."""
    return key.replace("turned", "transposed").replace("far", "uncached")


def _tiled_fields(tiled: TiledProducts) -> dict[str, object]:
    return {
        "tiles": [
            {"rows": one.rows, "columns": one.columns, "attained": one.attained}
            for one in tiled.tiles
        ],
        "splits": list(tiled.splits),
        "start_depth": tiled.start_depth,
        "result_bandwidth": tiled.result_bandwidth,
        "source": tiled.source,
    }


def _convolution_fields(one: ConvolutionClass) -> dict[str, object]:
    numbers = {name: getattr(one, name) for name in _CONVOLUTION_SECONDS}
    return {
        "form": one.algorithm.value,
        "type": one.kind.value,
        **numbers,
        "far": one.uncached_slowdown,
        "kernel_far": one.kernel_uncached,
    }


def _machine(fields: JsonFields) -> MachineDescription:
    version = fields.integer("format", COUNT)
    if version != FORMAT:
        raise MachineError(f"{fields.where}: format {version}; this version reads {FORMAT}")
    machine = MachineDescription(
        name=_name(fields),
        kind=fields.text("kind"),
        source=printable(fields, "source"),
        units=fields.integer("units", COUNT),
        levels=fields.items("levels", _level, 1),
        rates=_rates_table(fields),
        kernel_seconds=fields.number("kernel_seconds", SECONDS),
        row_seconds=fields.number("row_seconds", SECONDS),
        thunk_seconds=fields.number("thunk_seconds", SECONDS),
        exchanges=fields.items("exchanges", read_exchange),
        products=fields.items("products", _product) if fields.has("products") else (),
        tiled=_tiled(fields.nested("tiled")) if fields.has("tiled") else None,
        fused_attention=(
            read_attention(fields.nested("fused_attention"))
            if fields.has("fused_attention")
            else None
        ),
        convolutions=(
            fields.items("convolutions", _convolution) if fields.has("convolutions") else ()
        ),
        attained=_attained(fields.nested("attained")) if fields.has("attained") else Attained(),
        program_bytes=fields.integer("program_bytes", (0, SIZE[1]), 0),
        host_bandwidth=fields.number("host_bandwidth", RATE, 0.0),
        spread=fields.number("spread", SPREAD, 0.0),
        step_seconds=fields.number("step_seconds", SECONDS, 0.0),
        output_seconds=fields.number("output_seconds", SECONDS, 0.0),
        wait_seconds=fields.number("wait_seconds", SECONDS, 0.0),
    )
    fields.done()
    if machine.program_bytes > machine.levels[-1].size:
        raise MachineError(f"{fields.where}: program_bytes are more than the memory has")
    if machine.kind not in KINDS:
        raise MachineError(
            f"{fields.where}: kind must be {' or '.join(KINDS)}, found {shown(machine.kind)}"
        )
    if machine.levels[-1].kernel_local:
        raise MachineError(
            f"{fields.where}: the last of levels is the memory, which is not kernel_local"
        )
    _require_growing(fields.where, "levels", "bytes", [level.size for level in machine.levels])
    _require_growing(
        fields.where, "exchanges", "devices", [way.devices for way in machine.exchanges]
    )
    for narrow, wide in pairwise(machine.exchanges):
        if [one.name for one in narrow.protocols] != [one.name for one in wide.protocols]:
            raise MachineError(
                f"{fields.where}: exchanges: all must have protocols of the same names"
            )
        if wide.devices % narrow.devices:
            raise MachineError(
                f"{fields.where}: exchanges: {wide.devices} devices are no whole number of circles "
                f"of {narrow.devices}"
            )
    return machine


def _name(fields: JsonFields) -> str:
    """Read a machine's name, which ``--machine NAME{node=2}`` and the options of passes must be able to state."""
    name = fields.text("name")
    if not name.isprintable() or name != name.strip() or _REFUSED.intersection(name):
        raise fields.error(
            f"{fields.where}: name must be printable, without {' '.join(sorted(_REFUSED))} and spaces around it, "
            f"found {shown(name)}"
        )
    return name


def _level(fields: JsonFields) -> MemoryLevel:
    level = MemoryLevel(
        printable(fields, "name"),
        fields.integer("bytes", SIZE),
        fields.number("bandwidth", RATE),
        bool(fields.integer("kernel_local", (0, 1), 0)),
    )
    fields.done()
    return level


def _attained(fields: JsonFields) -> Attained:
    seen = Attained(*(fields.number(name, FRACTION, 1.0) for name in _ATTAINED))
    fields.done()
    return seen


def _rates_table(machine: JsonFields) -> tuple[tuple[PrimitiveType, Rates], ...]:
    found = machine.pop("rates")
    if not isinstance(found, dict) or PrimitiveType.F32.value not in found:
        raise MachineError(
            f"{machine.where}: rates must be an object by element type, f32 among them"
        )
    table = []
    for name, entry in found.items():
        if name not in _NAMED:
            raise MachineError(f"{machine.where}: rates: no element type is named {shown(name)}")
        fields = machine.inside(entry, f"rates.{name}")
        matrix, simple, exp = (
            fields.number(n, RATE) for n in ("matrix", "simple", "transcendental")
        )
        rates = Rates(matrix, simple, exp)
        if fields.has("attained"):
            attained = fields.number("attained", FRACTION)
            rates = replace(rates, attained=attained, source=printable(fields, "source"))
        if fields.has("functions"):
            rates = replace(rates, functions=_functions(fields.nested("functions")))
        fields.done()
        table.append((_NAMED[name], rates))
    return tuple(table)


def _functions(fields: JsonFields) -> tuple[tuple[Opcode, float], ...]:
    rates = []
    for name in sorted(fields.names):
        if name not in _OPCODES:
            raise MachineError(f"{fields.where}: no operation is named {shown(name)}")
        rates.append((_OPCODES[name], fields.number(name, RATE)))
    return tuple(rates)


def _product(fields: JsonFields) -> ProductClass:
    found = fields.pop("types")
    kinds = [_NAMED.get(str(name)) for name in found] if isinstance(found, list) else []
    if len(kinds) != 3 or None in kinds:
        raise MachineError(
            f"{fields.where}: types must be three element types, found {shown(found)}"
        )
    limits = {"multiplications": MULTIPLICATIONS}
    sizes = [fields.integer(name, limits.get(name, COUNT)) for name in _PRODUCT_SIZES]
    seconds = [fields.number(name, SECONDS) for name in _PRODUCT_SECONDS]
    factors = [fields.number(name, FACTOR) for name in _PRODUCT_FACTORS]
    fields.done()
    return ProductClass(*kinds, *sizes, *seconds, *factors)  # type: ignore[arg-type]


def _tiled(fields: JsonFields) -> TiledProducts:
    splits = fields.pop("splits")
    if (
        not isinstance(splits, list)
        or not 0 < len(splits) <= MAX_SPLITS
        or not all(type(one) is int and 0 < one <= MAX_SPLIT for one in splits)
        or 1 not in splits
    ):
        raise MachineError(
            f"{fields.where}: splits must be at most {MAX_SPLITS} integers from 1 to {MAX_SPLIT}, 1 among them, "
            f"found {shown(splits)}"
        )
    tiled = TiledProducts(
        fields.items("tiles", _tile, 1),
        tuple(splits),
        fields.number("start_depth", (0.0, 1e6)),
        fields.number("result_bandwidth", RATE),
        printable(fields, "source"),
    )
    fields.done()
    return tiled


def _tile(fields: JsonFields) -> Tile:
    tile = Tile(
        fields.integer("rows", COUNT),
        fields.integer("columns", COUNT),
        fields.number("attained", FRACTION),
    )
    fields.done()
    return tile


def _convolution(fields: JsonFields) -> ConvolutionClass:
    algorithm = fields.text("form")
    if algorithm not in _ALGORITHMS:
        raise MachineError(
            f"{fields.where}: form must be {', '.join(_ALGORITHMS)}, found {algorithm!r}"
        )
    name = fields.text("type")
    if name not in _NAMED:
        raise MachineError(f"{fields.where}: no element type is named {shown(name)}")
    seconds = [fields.number(name, SECONDS) for name in _CONVOLUTION_SECONDS]
    slowdown = fields.number("far", FACTOR)
    of_kernel = fields.number("kernel_far", FACTOR) if fields.has("kernel_far") else slowdown
    fields.done()
    found = ConvolutionClass(_ALGORITHMS[algorithm], _NAMED[name], *seconds)
    return replace(found, uncached_slowdown=slowdown, kernel_uncached=of_kernel)


def _require_growing(where: str, name: str, field: str, sizes: Iterable[int]) -> None:
    listed = list(sizes)
    if listed != sorted(set(listed)):
        raise MachineError(f"{where}: {name} must stand in growing order of {field}")
