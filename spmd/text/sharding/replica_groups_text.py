"""Replica groups in text: lists ``{{0,1},{2,3}}``, iota ``[2,2]<=[4]``, mesh ``mesh['x'=2,'y'=2] {'y'}``."""

from __future__ import annotations

from spmd.device import MeshGroups, ReplicaGroups
from spmd.ops.checks import set_text
from spmd.text.lexer import Scanner
from spmd.text.sharding.mesh_text import read_axes, read_mesh
from spmd.text.sharding.sharding_text import read_iota_tail


def read_replica_groups(scanner: Scanner) -> ReplicaGroups:
    """Read groups of ids, as a list or an iota tile. Raises HloParseError if there are none."""
    if scanner.peek("mesh"):
        return _read_mesh_groups(scanner)
    if scanner.peek("["):
        start = scanner.pos
        dims = scanner.integers("[", "]")
        if len(dims) != 2:
            scanner.fail(f"expected [groups,members], found {len(dims)} dimensions", start)
        scanner.expect("<=")
        return ReplicaGroups(iota=read_iota_tail(scanner, dims))
    return ReplicaGroups(groups=tuple(scanner.integers() for _ in scanner.items()))


def _read_mesh_groups(scanner: Scanner) -> ReplicaGroups:
    start = scanner.pos
    mesh = read_mesh(scanner)
    axes = read_axes(scanner, mesh)
    written = " ".join(scanner.text[start : scanner.pos].split())
    return ReplicaGroups(mesh=MeshGroups(mesh.axes, axes, mesh.device_ids, written))


def format_replica_groups(groups: ReplicaGroups) -> str:
    if groups.iota is not None:
        return str(groups.iota)
    if groups.mesh is not None:
        return groups.mesh.text
    return set_text(map(set_text, groups.groups))
