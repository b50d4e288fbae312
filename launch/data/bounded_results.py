"""Return the sizes of bounded dynamic results as further results, so that a compiled program states them.

ROOT r = s32[<=8] negate(d)     =>     r = s32[<=8] negate(d)
                                       n = s32[] get-dimension-size(r), dimensions={0}
                                       ROOT t = (s32[<=8], s32[]) tuple(r, n)
"""

from __future__ import annotations

from collections.abc import Iterator

from partitioner.propagation.propagation_flags import TO_OUTPUT, Allowed, output_flags
from runtime.arrays.sharded_arrays import bounded_dimensions
from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.hlo.module import EntryLayout, InputOutputAlias
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, PrimitiveType, TupleShape, leaves
from spmd.sharding import HloSharding

_SIZE = ArrayShape(PrimitiveType.S32, ())


def with_sizes(module: HloModule, *, partitioned: bool) -> HloModule:
    """Return a module whose root is a flat tuple: the results' leaves, then an s32[] size for each bounded dimension.

    The sizes stand in the order of ``bounded_dimensions``. A module without bounded results is returned as it is; any
    other stays as it is, and a changed copy is returned.

    partitioned: it is one device's program. Raises UnsupportedError if its bounded results are divided among the
    devices, since a device then knows the size of its tile alone, or if a bounded result aliases a parameter.
    """
    results = list(leaves(module.entry.root.shape))
    bounded = bounded_dimensions([shape for _, shape in results])
    if not bounded:
        return module
    _require_own_memory(module, {results[k][0] for k, _ in bounded})
    changed = clone_module(module)
    b, root = Builder(changed.entry), changed.entry.root
    values = list(_leaf_values(b, root))
    shardings = None if root.sharding is None else root.sharding.leaf_shardings(root.shape)
    for k, _ in bounded:
        if partitioned and shardings is not None and shardings[k].is_tiled:
            raise UnsupportedError(
                f"result {k} of {module.name}, {results[k][1]}, has bounded dynamic sizes and the sharding "
                f"{shardings[k]}: a partitioned program does not give the size of the global array"
            )
    sizes = [
        b.create(Opcode.GET_DIMENSION_SIZE, (values[k],), DimensionsAttrs((d,))) for k, d in bounded
    ]
    changed.entry.root = b.tuple([*values, *sizes])
    # Inference omits the marks of bounded dimensions, but the returned shapes need them.
    changed.entry.root.shape = TupleShape((*[s for _, s in results], *[_SIZE] * len(sizes)))
    if partitioned and root.opcode is not Opcode.PARAMETER:
        root.sharding = None  # only parameters and the root have shardings there
    _remove_unread_tuples(root)
    if shardings is not None:
        replicated = (HloSharding.replicated(),) * len(sizes)
        changed.entry.root.sharding = HloSharding.tuple_of(shardings + replicated)
    _change_header(module, changed, len(sizes))
    return changed


def _leaf_values(b: Builder, value: HloInstruction) -> Iterator[HloInstruction]:
    if not isinstance(value.shape, TupleShape):
        yield value
        return
    for i in range(len(value.shape.elements)):
        is_made_here = value.opcode is Opcode.TUPLE
        yield from _leaf_values(
            b, value.operand(i) if is_made_here else b.get_tuple_element(value, i)
        )


def _remove_unread_tuples(x: HloInstruction) -> None:
    """Remove ``x`` and its elements, where they are tuples that nothing reads: no pass need know them."""
    if x.opcode is Opcode.TUPLE and not x.users and x.parent is not None:
        elements = list(dict.fromkeys(x.operands))
        x.parent.remove(x)
        for element in elements:
            _remove_unread_tuples(element)


def _require_own_memory(module: HloModule, bounded: set[tuple[int, ...]]) -> None:
    for alias in module.input_output_alias:
        if alias.output_index in bounded:
            raise UnsupportedError(
                f"result {list(alias.output_index)} of {module.name} is bounded dynamic and aliases parameter "
                f"{alias.parameter}: the next step would not get its size"
            )


def _change_header(module: HloModule, changed: HloModule, num_sizes: int) -> None:
    """Copy the header's statements about the result to its leaves, and add those about the sizes, whose sharding is
    fixed.
    """
    numbers = {index: k for k, (index, _) in enumerate(leaves(module.entry.root.shape))}
    changed.input_output_alias = tuple(
        InputOutputAlias(
            (numbers[alias.output_index],), alias.parameter, alias.parameter_index, alias.must_alias
        )
        for alias in module.input_output_alias
    )
    if module.entry_layout is not None:
        results = [shape for _, shape in leaves(module.entry_layout.result)]
        result = TupleShape((*results, *[_SIZE] * num_sizes))
        changed.entry_layout = EntryLayout(module.entry_layout.parameters, result)
    if TO_OUTPUT in dict(module.extra_header):
        flags = ["true" if flag is Allowed.YES else "false" for flag in output_flags(module)]
        text = "{" + ",".join(flags + ["false"] * num_sizes) + "}"
        changed.extra_header = tuple(
            (name, text if name == TO_OUTPUT else said) for name, said in module.extra_header
        )
