"""HloSharding in text: ``{devices=[2,2]<=[4]}``, ``{replicated}``, tuples, and the named form over a mesh."""

from __future__ import annotations

import math
import re

from spmd.device import IotaTile
from spmd.limits import MAX_RANK
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment
from spmd.text.lexer import Scanner
from spmd.text.sharding.named_sharding_text import read_named_sharding

_MESH_NEXT = re.compile(r"(?:maximal_)?mesh\s*+\[")
_WORD = re.compile(r"[a-z_]++")
_GROUP = re.compile(r"(shard_as|shard_like)\s++(\d{1,19})")
_SUBGROUPS = {kind.value: kind for kind in SubgroupType}
_PLAIN_KINDS = {
    "replicated": ShardingKind.REPLICATED,
    "manual": ShardingKind.MANUAL,
    "unknown": ShardingKind.UNKNOWN,
    "unreduced": ShardingKind.UNREDUCED,
}


def parse_sharding(text: str) -> HloSharding:
    """Return the sharding that is all of ``text``, braces included. Raises HloParseError if it is none."""
    return Scanner.of(text).entire(read_sharding)


def read_sharding(scanner: Scanner) -> HloSharding:
    scanner.expect("{")
    if scanner.peek("{") or scanner.peek("}"):
        return _read_tuple(scanner)
    return _read_single(scanner)


def _read_tuple(scanner: Scanner) -> HloSharding:
    """Read ``{{replicated}, {devices=..}}``: one entry per leaf; the first brace is already read."""
    elements: list[HloSharding] = []
    for _ in scanner.items("", "}"):
        scanner.expect("{")
        elements.append(_read_single(scanner))
    return HloSharding.tuple_of(tuple(elements))


def _read_single(scanner: Scanner) -> HloSharding:
    """Read a sharding behind the opening brace, up to and including the closing one."""
    start = scanner.skip_space()
    if _MESH_NEXT.match(scanner.text, start, scanner.end) is not None:
        sharding = read_named_sharding(scanner)
        written = " ".join(scanner.text[start : scanner.pos].split())
    else:
        sharding, written = _read_positional(scanner), ""
    group, metadata = _read_suffix(scanner)
    scanner.expect("}")
    if not (written or group or metadata):
        return sharding
    return HloSharding(
        sharding.kind,
        sharding.tiles,
        sharding.subgroup_types,
        sharding.device,
        as_written=written,
        metadata=metadata,
        group=group,
    )


def _read_positional(scanner: Scanner) -> HloSharding:
    word = scanner.need(_WORD, "a sharding")
    name = word.group()
    if name == "devices":
        scanner.expect("=")
        return _read_tiled(scanner)
    if name == "maximal":
        if not scanner.consume_if("device"):
            scanner.fail(f"expected 'device', found {scanner.found()}")
        scanner.expect("=")
        return HloSharding.maximal(scanner.integer("a device id"))
    if name == "device":
        scanner.expect("=")
        device = scanner.integer("a device id")
        scanner.expect("maximal")
        return HloSharding.maximal(device)
    kind = _PLAIN_KINDS.get(name)
    if kind is None:
        scanner.fail(f"unknown sharding {name!r}", word.start())
    return HloSharding(kind)


def _read_tiled(scanner: Scanner) -> HloSharding:
    start = scanner.skip_space()
    dims = scanner.integers("[", "]")
    if not dims or any(size < 1 for size in dims):
        scanner.fail("expected tile sizes of at least 1", start)
    if len(dims) > MAX_RANK:
        scanner.fail(f"a device grid has at most {MAX_RANK} dimensions", start)
    tiles = (
        TileAssignment(read_iota_tail(scanner, dims))
        if scanner.consume_if("<=")
        else _listed(scanner, dims)
    )
    subgroups = _read_subgroups(scanner)
    if len(subgroups) > len(dims):
        scanner.fail(f"{len(subgroups)} subgroup types for {len(dims)} tile dimensions", start)
    return HloSharding.tiled(tiles, subgroups)


def read_iota_tail(scanner: Scanner, dims: tuple[int, ...]) -> IotaTile:
    """Read ``[4]`` or ``[2,2]T(1,0)`` after ``dims<=``."""
    start = scanner.skip_space()
    reshape = scanner.integers("[", "]")
    perm = tuple(range(len(reshape)))
    if len(reshape) > 1:
        scanner.expect("T")
        perm = scanner.integers("(", ")")
    if sorted(perm) != list(range(len(reshape))):
        scanner.fail(
            f"expected a permutation of {len(reshape)} dimensions, found ({','.join(map(str, perm))})",
            start,
        )
    if len(reshape) > MAX_RANK or len(dims) > MAX_RANK:
        scanner.fail(f"a device grid has at most {MAX_RANK} dimensions", start)
    if any(size < 1 for size in reshape) or math.prod(reshape) != math.prod(dims):
        scanner.fail(f"{list(reshape)} and {list(dims)} hold different numbers of devices", start)
    return IotaTile(dims, reshape, perm)


def _listed(scanner: Scanner, dims: tuple[int, ...]) -> TileAssignment:
    start = scanner.skip_space()
    if math.prod(dims) == 1:
        scanner.fail("expected tiles for more than one device; write {maximal device=0}", start)
    ids = [scanner.integer("a device id")]
    while scanner.consume_if(","):
        ids.append(scanner.integer("a device id"))
    if len(ids) != math.prod(dims):
        scanner.fail(f"expected {math.prod(dims)} device ids, found {len(ids)}", start)
    return TileAssignment(IotaTile.of(dims), tuple(ids))


def _read_subgroups(scanner: Scanner) -> tuple[SubgroupType, ...]:
    if scanner.consume_if("last_tile_dim_replicate"):
        return (SubgroupType.REPLICATED,)
    if not scanner.consume_if("last_tile_dims"):
        return ()
    scanner.expect("=")
    kinds: list[SubgroupType] = []
    for _ in scanner.items():
        word = scanner.need(_WORD, "a subgroup type")
        if word.group() not in _SUBGROUPS:
            scanner.fail(f"unknown subgroup type {word.group()!r}", word.start())
        kinds.append(_SUBGROUPS[word.group()])
    return tuple(kinds)


def _read_suffix(scanner: Scanner) -> tuple[str, str]:
    """Read ``shard_as 3`` and ``metadata={..}`` in any order. Returns (group, metadata text)."""
    group = metadata = ""
    while True:
        if (found := scanner.match(_GROUP)) is not None:
            group = f"{found[1]} {found[2]}"
        elif scanner.consume_if("metadata"):
            scanner.expect("=")
            start, end = scanner.balanced()
            metadata = scanner.text[start + 1 : end - 1]
        else:
            return group, metadata
