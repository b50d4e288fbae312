"""Rules that the computations of attention fusions keep, for the generator of a GPU's kernels."""

from __future__ import annotations

from runtime.fusion.element_operations import is_elementwise
from runtime.gpu.triton.structure import untransposed
from spmd.analysis.fusion_emitter import is_attention
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, DotAttrs
from spmd.ops.dot import free_dims
from spmd.ops.reduction import reduction_kind


def mode_of(fusion: HloInstruction) -> str:
    """Return online, rows or columns. Raises AssertionError if the computation of ``fusion`` breaks a rule."""
    assert is_attention(fusion)
    fused = fusion.to_apply
    parameters = set(fused.parameters)
    products = [
        x
        for x in fused.instructions
        if x.opcode is Opcode.DOT and parameters.issuperset(x.operands)
    ]
    scores = {x.dims for x in products}
    assert len(scores) == 1, "all score matrices have the same sizes"
    (dims,) = scores
    matrices: set[HloInstruction] = set()
    sinks: dict[HloInstruction, bool] = {}
    for x in fused.post_order():
        if x in products:
            _check_product(x)
            matrices.add(x)
        elif any(one in matrices for one in x.operands) and x.opcode in (Opcode.DOT, Opcode.REDUCE):
            sinks[x] = _sink_of_rows(x, matrices, parameters, len(dims))
        elif x.opcode is Opcode.PARAMETER:
            if x.dims == dims and not _is_factor(x):
                matrices.add(x)
        elif x.opcode is Opcode.BROADCAST:
            assert x.dims == dims
            source = x.operand(0)
            if source in sinks:
                given = x.attrs_as(DimensionsAttrs).dimensions
                assert sinks[source], "only values per row are read inside"
                assert given == tuple(range(len(dims) - 1))
            else:
                assert source in parameters or source.opcode is Opcode.CONSTANT
            matrices.add(x)
        elif x.opcode is Opcode.IOTA:
            assert x.dims == dims
            matrices.add(x)
        elif x.opcode is Opcode.CONSTANT:
            assert not x.dims
        elif x is fused.root and x.opcode is Opcode.TUPLE:
            assert {untransposed(y)[0] for y in x.operands} <= sinks.keys()
        elif x.opcode is Opcode.TRANSPOSE:
            assert x in fused.root.elements, "results alone are transposed"
            assert x.operand(0) in sinks
        else:
            assert is_elementwise(x.opcode), f"{x}"
            assert x.opcode not in (Opcode.COPY, Opcode.BITCAST_CONVERT)
            assert x.dims == dims
            assert matrices.issuperset(x.operands), f"{x}"
            matrices.add(x)
    roots = {untransposed(x)[0] for x in fused.root.elements}
    assert roots <= sinks.keys(), "results are sinks"
    inner = [x for x in sinks if any(user.opcode is Opcode.BROADCAST for user in x.users)]
    if inner:
        _check_softmax(fused.post_order(), sinks)
        return "online"
    assert roots == sinks.keys(), "every sink is a result"
    assert len(set(sinks.values())) == 1, "all sinks are of rows, or all of columns"
    return "rows" if all(sinks.values()) else "columns"


def _is_factor(x: HloInstruction) -> bool:
    """Return whether only products read the parameter ``x``."""
    return all(user.opcode is Opcode.DOT for user in x.users)


def _check_product(x: HloInstruction) -> None:
    attrs = x.attrs_as(DotAttrs)
    lhs, rhs = (len(one.dims) for one in x.operands)
    assert len(attrs.lhs_contracting) == 1
    assert len(free_dims(rhs, attrs.rhs_batch, attrs.rhs_contracting)) == 1, "t is the last one"
    assert free_dims(lhs, attrs.lhs_batch, attrs.lhs_contracting), "s is the last of the left ones"


def _sink_of_rows(
    x: HloInstruction,
    matrices: set[HloInstruction],
    parameters: set[HloInstruction],
    rank: int,
) -> bool:
    """Return whether the sink ``x`` gives a result per row, and otherwise per column."""
    if x.opcode is Opcode.REDUCE:
        assert x.operand(0) in matrices
        assert x.operand(1).opcode is Opcode.CONSTANT
        assert reduction_kind(x.to_apply) in (ReductionKind.MAX, ReductionKind.SUM)
        contracted = x.attrs_as(DimensionsAttrs).dimensions
    else:
        attrs = x.attrs_as(DotAttrs)
        number = 0 if x.operand(0) in matrices else 1
        assert x.operand(number) in matrices
        assert x.operand(1 - number) in parameters
        contracted = (attrs.lhs_contracting, attrs.rhs_contracting)[number]
        batch = (attrs.lhs_batch, attrs.rhs_batch)[number]
        assert {rank - 1, rank - 2}.isdisjoint(batch)
    if rank - 1 in contracted:
        assert tuple(contracted) == (rank - 1,)
        return True
    assert rank - 2 in contracted
    return False


def _check_softmax(order: list[HloInstruction], sinks: dict[HloInstruction, bool]) -> None:
    """Check the computation of a softmax in one pass: the largest scores, the sums of exponentials, and products."""
    assert all(sinks.values())
    largest = [x for x in sinks if _reduces(x, ReductionKind.MAX)]
    sums = [x for x in sinks if _reduces(x, ReductionKind.SUM)]
    assert len(largest) == 1
    exponentials = [
        x
        for x in order
        if x.opcode is Opcode.EXPONENTIAL
        and x.operand(0).opcode is Opcode.SUBTRACT
        and x.operand(0).operand(0) is largest[0].operand(0)
        and x.operand(0).operand(1).operands == (largest[0],)
    ]
    assert len(exponentials) == 1
    for x in sums:
        assert _narrowed(x.operand(0)) is exponentials[0]
    for x in sinks:
        if x.opcode is Opcode.DOT:
            weight = next(one for one in x.operands if one.opcode is not Opcode.PARAMETER)
            while weight is not exponentials[0]:
                weight = _proportional(weight, exponentials[0])


def _proportional(x: HloInstruction, exponentials: HloInstruction) -> HloInstruction:
    """Return the operand that is the exponentials, or is proportional to them, and to which ``x`` is proportional."""
    if x.opcode is Opcode.CONVERT:
        return x.operand(0)
    if x.opcode is Opcode.SELECT:
        zeros = x.operand(2)
        assert zeros.opcode is Opcode.BROADCAST
        assert zeros.operand(0).opcode is Opcode.CONSTANT
        return x.operand(1)
    assert x.opcode in (Opcode.MULTIPLY, Opcode.DIVIDE)
    (inside,) = (one for one in x.operands if _needs(one, exponentials))
    assert x.opcode is Opcode.MULTIPLY or inside is x.operand(0)
    return inside


def _needs(x: HloInstruction, exponentials: HloInstruction) -> bool:
    """Return whether the score matrix ``x`` is computed from the exponentials element by element."""
    if x is exponentials:
        return True
    return is_elementwise(x.opcode) and any(_needs(one, exponentials) for one in x.operands)


def _reduces(x: HloInstruction, kind: ReductionKind) -> bool:
    return x.opcode is Opcode.REDUCE and reduction_kind(x.to_apply) is kind


def _narrowed(x: HloInstruction) -> HloInstruction:
    while x.opcode is Opcode.CONVERT:
        x = x.operand(0)
    return x
