"""Time of an instruction on one device by the roofline model: the larger of its arithmetic and its memory time.

Arithmetic runs at the attained rate of its unit (matrix products, simple operations, transcendental functions), and
bytes move at the bandwidth of the memory level that holds all bytes that the kernel accesses (S. Williams, A. Waterman,
D. Patterson, Roofline: an insightful visual performance model for multicore architectures, 2009). A fusion is one
kernel: it accesses its operands and results and performs the arithmetic of all its instructions. The products of fused
attention run at the machine's rate of fused attention of their shape, and compute no scores that a mask hides.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

from collectives.cost.custom_calls import CallCost, call_cost
from collectives.cost.estimator import CollectiveTime, LinkUse
from collectives.cost.host_link import HOST_MOVES, host_link
from spmd.analysis.attention_cost import AttentionShape
from spmd.analysis.attention_mask import visible_window
from spmd.analysis.fusion_emitter import is_attention
from spmd.analysis.structure import StructuralKeys, instruction_key
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import CALLERS, DONES, WEIGHTLESS, wrapped
from spmd.machine.description import MachineDescription, Rates
from spmd.machine.products import class_for
from spmd.ops import definition
from spmd.ops.attrs import ConvolutionAttrs, CustomCallAttrs, DotAttrs
from spmd.ops.checks import plain
from spmd.ops.custom_call import custom_call_target
from spmd.ops.dot import dot_sizes
from spmd.ops.product_precision import allows_tf32
from spmd.shape import ArrayShape, PrimitiveType, leaves

_NO_KERNEL = frozenset(
    {
        *WEIGHTLESS,
        *(Opcode.DOMAIN, Opcode.ADD_DEPENDENCY, Opcode.GET_DIMENSION_SIZE),
        *DONES,
        *(Opcode.ASYNC_UPDATE, Opcode.COPY_START, Opcode.COPY_DONE),
        *(Opcode.SEND, Opcode.SEND_DONE, Opcode.RECV, Opcode.RECV_DONE),
        *KIND,
    }
)
#: Opcodes whose time depends on their backend config.
_CONFIGURED = (Opcode.CUSTOM_CALL, Opcode.FUSION)
_PRODUCTS = frozenset(
    {
        *(Opcode.DOT, Opcode.RAGGED_DOT, Opcode.SCALED_DOT, Opcode.CONVOLUTION),
        *(Opcode.CHOLESKY, Opcode.TRIANGULAR_SOLVE),
    }
)


class DeviceTime:
    """Times of instructions on one device of ``machine``, whose rates are attained ones.

    ``given`` holds costs of custom calls by target. Custom calls of unknown targets cost the bytes of their arrays if
    ``unknown_by_bytes`` is True. Instructions with equal structure and operand shapes are estimated once, so the
    computations must not be changed while the object is in use. ``keys``: of these computations, if another object has
    read them.
    """

    def __init__(
        self,
        machine: MachineDescription,
        given: Mapping[str, CallCost],
        *,
        unknown_by_bytes: bool = False,
        keys: StructuralKeys | None = None,
    ) -> None:
        self._machine = machine
        self._given, self._by_bytes = given, unknown_by_bytes
        self._keys = keys or StructuralKeys()
        self._known: dict[Hashable, float] = {}
        self._inside: dict[int, float] = {}
        self._rates: dict[PrimitiveType, Rates] = {}

    @property
    def begin(self) -> float:
        """Return the seconds from the dispatch to the end of an empty kernel."""
        return self._machine.start_seconds()

    def seconds(self, x: HloInstruction) -> float:
        """Return the seconds of one execution of ``x`` (``Estimator.compute``).

        Raises ValueError for a while, a conditional or a call, and CostError for an unknown custom call.
        """
        if x.opcode in CALLERS:
            raise ValueError(f"{x.name}: a {x.opcode} is priced by what it runs")
        copy = self.host_copy(x)
        if copy is not None:
            return copy.seconds
        if x.opcode in _NO_KERNEL or _only_renames(x):
            return 0.0
        if x.opcode is Opcode.ASYNC_START:
            return sum(map(self.seconds, x.to_apply.instructions))
        key = (
            instruction_key(x, self._keys.key),
            tuple(plain(operand.shape) for operand in x.operands),
            x.annotations.backend_config if x.opcode in _CONFIGURED else "",
        )
        known = self._known.get(key)
        if known is None:
            known = self._custom_call(x) if x.opcode is Opcode.CUSTOM_CALL else self._kernel(x)
            self._known[key] = known
        return known

    def host_copy(self, x: HloInstruction) -> CollectiveTime | None:
        """Return the time of ``x`` on the link of the host (``Estimator.host_copy``)."""
        link, machine = host_link(x), self._machine
        if (
            link is None
            or not machine.host_bandwidth
            or custom_call_target(wrapped(x)) in self._given
        ):
            return None
        size = machine.byte_size(x.operand(0).shape)
        moving = size / machine.host_bandwidth
        use = LinkUse(link, size, moving)
        return CollectiveTime(machine.thunk_seconds + moving, "copy", (use,), machine.thunk_seconds)

    def _kernel(self, x: HloInstruction) -> float:
        """Return the seconds of the kernel of ``x`` by the roofline model."""
        moved = float(definition(x.opcode).bytes_accessed(x, self._machine.byte_size))
        busy = self._attention(x.to_apply) if is_attention(x) else self._arithmetic(x)
        return self.begin + max(busy, self._moving(moved))

    def _attention(self, fused: HloComputation) -> float:
        """Return the seconds of the products of fused attention, of which the first computes scores.

        Scores that a mask hides cost nothing. The others go at the rate of causal attention in which a query sees as
        many keys in the mean.
        """
        products = list(fused.with_opcode(Opcode.DOT))
        _, (m, depth, n) = dot_sizes(products[0])
        # Heads that share keys stand beside the positions of their queries.
        keys, visible = min(m, n), 1.0
        window = visible_window(fused)
        if not window.is_everything:
            rows, columns = products[0].dims[-2:]
            visible = window.visible(rows, columns) / max(rows * columns, 1)
            keys = min(keys, math.ceil(2 * visible * columns))
        shape = AttentionShape(depth, keys, len(products) > 2, causal=not window.is_everything)
        return sum(
            visible
            * definition(x.opcode).cost(x).flops
            / self._machine.attention_rate(
                _computed_in(x), shape, tf32=allows_tf32(x.attrs_as(DotAttrs))
            )
            for x in products
        )

    def _custom_call(self, call: HloInstruction) -> float:
        target = call.attrs_as(CustomCallAttrs).target
        if target in HOST_MOVES and target not in self._given:
            return 0.0  # host and device share a memory
        cost = call_cost(call, self._given, self._machine.byte_size, by_bytes=self._by_bytes)
        if cost.seconds is not None:
            return cost.seconds
        rates = self._rates_of(_computed_in(call))
        work = cost.work
        if cost.attention is not None:
            busy = work.flops / self._machine.attention_rate(_computed_in(call), cost.attention)
        else:
            busy = work.flops / rates.matrix + work.transcendentals / rates.transcendental
        return self.begin + max(busy, self._moving(work.bytes_accessed))

    def _moving(self, size: float) -> float:
        """Return the seconds for which a kernel moves ``size`` bytes."""
        return size / self._machine.level_for(size).bandwidth

    def _arithmetic(self, x: HloInstruction, *, inside: bool = False) -> float:
        """Return the seconds of the arithmetic of ``x``, including the computations that it calls. inside: ``x`` is an
        instruction of a called computation.
        """
        op = definition(x.opcode)
        work = op.cost(x)
        rates = self._rates_of(_computed_in(x))
        if x.opcode in _PRODUCTS:
            stored = _stored(x) if inside else x
            seconds = self._product(x, stored.array_shape.element_type, work.flops, rates)
        else:
            seconds = work.flops / rates.simple + work.transcendentals / rates.transcendental
        for callee, times in zip(x.called_computations, op.applications(x), strict=True):
            if times:
                seconds += times * self._all_inside(callee)
        return seconds

    def _all_inside(self, computation: HloComputation) -> float:
        """Return the seconds of the arithmetic of one execution of ``computation``."""
        key = self._keys.key(computation)
        known = self._inside.get(key)
        if known is None:
            known = sum(self._arithmetic(x, inside=True) for x in computation.instructions)
            self._inside[key] = known
        return known

    def _product(
        self, x: HloInstruction, stored: PrimitiveType, flops: float, rates: Rates
    ) -> float:
        """Return the seconds of a matrix product, by the class that the machine describes for such products if any.
        ``stored`` is the type of the elements that its kernel writes.
        """
        if x.opcode is Opcode.DOT and self._machine.products:
            types = (*(y.array_shape.element_type for y in x.operands), x.array_shape.element_type)
            batch, sizes = dot_sizes(x)
            known = class_for(self._machine.products, types, sizes)  # type: ignore[arg-type]
            if known is not None:
                return batch * known.seconds(*sizes)
        rate = rates.matrix
        if x.opcode is Opcode.DOT:
            tf32 = allows_tf32(x.attrs_as(DotAttrs))
            rate = self._machine.product_rate(_computed_in(x), tf32=tf32)
        tiled = self._machine.tiled
        shape = _tiled_sizes(x, flops) if tiled is not None else None
        if tiled is None or shape is None:
            return flops / rate
        element = stored.byte_size
        partials = self._machine.shared_levels[0].bandwidth
        return tiled.seconds(rate, self._machine.units, shape, element, partials)

    def _rates_of(self, kind: PrimitiveType) -> Rates:
        known = self._rates.get(kind)
        if known is None:
            known = self._rates[kind] = self._machine.rates_of(kind)
        return known


def _only_renames(x: HloInstruction) -> bool:
    """Return whether ``x`` is a reshape between row-major layouts, which moves no data."""
    return x.opcode is Opcode.RESHAPE and all(
        shape.layout is None or shape == shape.with_default_layout()
        for shape in (x.array_shape, x.operand(0).array_shape)
    )


def _stored(product: HloInstruction) -> HloInstruction:
    """Return what a kernel writes of a ``product`` in it: its only reader, if that has the same elements, and so on."""
    x = product
    while x.num_users == 1 and not x.is_root:
        (user,) = x.users
        if not isinstance(user.shape, ArrayShape) or user.dims != x.dims:
            break
        x = user
    return x


def _computed_in(x: HloInstruction) -> PrimitiveType:
    """Return the element type whose rates apply to ``x``.

    It is the first operand's type for products, comparisons, sorts and custom calls, and otherwise the result's.
    """
    if x.opcode in _PRODUCTS or x.opcode in (Opcode.COMPARE, Opcode.CUSTOM_CALL, Opcode.SORT):
        x = x.operand(0) if x.num_operands else x
    arrays = (leaf.element_type for _, leaf in leaves(x.shape) if isinstance(leaf, ArrayShape))
    return next(arrays, PrimitiveType.F32)


def _tiled_sizes(x: HloInstruction, flops: float) -> tuple[int, int, int, int] | None:
    """Return (batch, m, k, n) of the products of ``x``, which takes ``flops``; None if ``x`` is no plain product.

    A convolution is the product of its windows, [outputs, window elements], and its filters, [window elements, output
    features], as implicit GEMM algorithms compute it; a ragged product is one whose groups of rows follow each other.
    """
    if x.opcode in (Opcode.DOT, Opcode.SCALED_DOT):
        batch, (m, k, n) = dot_sizes(x)
        return batch, m, k, n
    if x.opcode not in (Opcode.CONVOLUTION, Opcode.RAGGED_DOT) or not x.array_shape.num_elements:
        return None
    dims, groups = x.array_shape.dims, 1
    n = dims[-1]
    if x.opcode is Opcode.CONVOLUTION:
        attrs = x.attrs_as(ConvolutionAttrs)
        groups = attrs.feature_group_count
        n = dims[attrs.dimension_numbers.output_feature] // groups
    results = x.array_shape.num_elements
    k = max(round(flops / (2 * results)), 1)
    return groups, results // (groups * n), k, n
