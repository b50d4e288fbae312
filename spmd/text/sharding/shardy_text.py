"""Shardy's attributes, which HLO carries as strings in frontend attributes.

xla.sdy.meshes     {mesh = #sdy.mesh<["data"=2, "model"=2]>}
xla.sdy.sharding   #sdy.sharding<@mesh, [{"x"}, {?}]>          of one value
                   #sdy.sharding_per_value<[<@mesh, [{}]>]>   of each result
manual axes        #sdy<manual_axes{"x"}>
"""

from __future__ import annotations

import math
import re

from spmd.mesh import AxisRef, DimensionSharding, Mesh, TensorSharding
from spmd.text.lexer import NAME, Scanner, quote

_SYMBOL = re.compile(r'@(?:([A-Za-z_][\w.$\-]*+)|"([^"\\]*+(?>(?:\\.[^"\\]*+)*))")')
_MESH_NAME = re.compile(r'[A-Za-z_][\w.$\-]*+|"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"')
_PRIORITY = re.compile(r"p(\d{1,19})")
_MAX_DEVICES = 1 << 31


def parse_meshes(text: str) -> dict[str, Mesh]:
    """Return the meshes of ``{mesh = #sdy.mesh<["data"=2]>, ...}`` by name. Raises HloParseError for other text."""
    scanner = Scanner.of(text, "xla.sdy.meshes")
    meshes: dict[str, Mesh] = {}
    for _ in scanner.items():
        found = scanner.need(_MESH_NAME, "a mesh name")
        name = found.group().strip('"')
        scanner.expect("=")
        scanner.expect("#sdy.mesh")
        if name in meshes:
            scanner.fail(f"mesh {name!r} is given twice", found.start())
        meshes[name] = _mesh(scanner, name)
    scanner.finish()
    return meshes


def format_meshes(meshes: dict[str, Mesh]) -> str:
    return (
        "{"
        + ", ".join(f"{_mesh_key(name)} = #sdy.mesh{mesh}" for name, mesh in meshes.items())
        + "}"
    )


def _mesh_key(name: str) -> str:
    return name if NAME.fullmatch(name) else quote(name)


def _mesh(scanner: Scanner, name: str) -> Mesh:
    """Read ``<["x"=2, "y"=4], device_ids=[..]>``."""
    scanner.expect("<")
    start = scanner.skip_space()
    axes: list[tuple[str, int]] = []
    for _ in scanner.items("[", "]"):
        axis = scanner.string()
        scanner.expect("=")
        axes.append((axis, scanner.integer("an axis size")))
    ids: tuple[int, ...] | None = None
    if scanner.consume_if(","):
        if not scanner.consume_if("device_ids"):
            scanner.fail(f"expected device_ids, found {scanner.found()}")
        scanner.expect("=")
        ids = scanner.integers("[", "]")
    scanner.expect(">")
    _check_mesh(scanner, start, axes, ids)
    return Mesh(name, tuple(axes), ids)


def _check_mesh(
    scanner: Scanner, start: int, axes: list[tuple[str, int]], ids: tuple[int, ...] | None
) -> None:
    if any(size < 1 for _, size in axes):
        scanner.fail("axis sizes are at least 1", start)
    if len({name for name, _ in axes}) != len(axes):
        scanner.fail("an axis name occurs twice", start)
    total = math.prod(size for _, size in axes)
    if total > _MAX_DEVICES:
        scanner.fail(f"a mesh of {total} devices is too large", start)
    if ids is None or (not axes and len(ids) == 1 and ids[0] >= 0):
        return
    if sorted(ids) != list(range(len(ids))) or len(ids) != total:
        scanner.fail(f"device_ids are not a permutation of 0..{total - 1}", start)


def parse_tensor_sharding(text: str) -> TensorSharding:
    """Parse ``#sdy.sharding<@mesh, [{"x"}, {?}]>``, with or without the prefix."""
    scanner = Scanner.of(text, "xla.sdy.sharding")
    scanner.consume_if("#sdy.sharding")
    return scanner.entire(_tensor_sharding)


def parse_sharding_per_value(text: str) -> tuple[TensorSharding, ...]:
    """Parse ``#sdy.sharding_per_value<[<@mesh, [{"x"}]>, ...]>``: one sharding per result."""
    scanner = Scanner.of(text, "xla.sdy.sharding")
    scanner.consume_if("#sdy.sharding_per_value")
    scanner.expect("<")
    shardings = tuple(_tensor_sharding(scanner) for _ in scanner.items("[", "]"))
    scanner.expect(">")
    scanner.finish()
    return shardings


def parse_shardings(text: str) -> tuple[TensorSharding, ...]:
    """Parse either form: the sharding of one value, or of each result."""
    if text.startswith("#sdy.sharding_per_value"):
        return parse_sharding_per_value(text)
    return (parse_tensor_sharding(text),)


def _tensor_sharding(scanner: Scanner) -> TensorSharding:
    scanner.expect("<")
    mesh: str | Mesh
    if (symbol := scanner.match(_SYMBOL)) is not None:
        mesh = symbol[1] or symbol[2]
    else:
        scanner.consume_if("#sdy.")
        scanner.expect("mesh")
        mesh = _mesh(scanner, "")
    scanner.expect(",")
    dims = tuple(_dimension(scanner) for _ in scanner.items("[", "]"))
    lists: dict[str, tuple[AxisRef, ...]] = {}
    while scanner.consume_if(","):
        word = scanner.need(NAME, "replicated or unreduced")
        if word.group() not in ("replicated", "unreduced") or word.group() in lists:
            scanner.fail(f"expected replicated or unreduced, found {word.group()!r}", word.start())
        scanner.expect("=")
        lists[word.group()] = _axes(scanner)
    scanner.expect(">")
    return TensorSharding(mesh, dims, lists.get("replicated", ()), lists.get("unreduced", ()))


def _dimension(scanner: Scanner) -> DimensionSharding:
    """Read ``{"x", "y":(1)2, ?}p1``."""
    axes: list[AxisRef] = []
    is_closed = True
    for _ in scanner.items():
        if scanner.consume_if("?"):
            is_closed = False
            scanner.expect("}")
            break
        axes.append(_axis(scanner))
    priority = scanner.match(_PRIORITY)
    return DimensionSharding(tuple(axes), is_closed, None if priority is None else int(priority[1]))


def _axis(scanner: Scanner) -> AxisRef:
    name = scanner.string()
    if not scanner.consume_if(":"):
        return AxisRef(name)
    start = scanner.pos
    scanner.expect("(")
    pre = scanner.integer("a pre-size")
    scanner.expect(")")
    size = scanner.integer("a sub-axis size")
    if pre < 1 or size < 2:
        scanner.fail(
            f"expected a pre-size of at least 1 and a size of at least 2, found ({pre}){size}",
            start,
        )
    return AxisRef(name, (pre, size))


def _axes(scanner: Scanner) -> tuple[AxisRef, ...]:
    return tuple(_axis(scanner) for _ in scanner.items())


def parse_manual_axes(text: str) -> tuple[str, ...]:
    """Return the axis names of ``#sdy<manual_axes{"x", "y"}>``."""
    scanner = Scanner.of(text, "xla.sdy.manual_axes")
    if scanner.consume_if("#sdy.manual_axes"):
        scanner.expect("<")
    else:
        scanner.expect("#sdy<")
        scanner.expect("manual_axes")
    names = tuple(ref.name for ref in _axes(scanner))
    scanner.expect(">")
    scanner.finish()
    return names
