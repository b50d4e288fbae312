"""Products with all-gathers and reduce-scatters, in parts: one part is communicated while another is computed."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, TypeAlias

from collectives.passes.window_ring import Piece, pieces_of
from collectives.passes.windowed_cost import WindowedCostModel, WindowedSavings
from collectives.passes.windowed_gather import GatheredProduct, gathered_product
from collectives.passes.windowed_scatter import ScatteredProduct, scattered_product
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import MACHINE_OPTION, register_pass
from spmd.passes.options import PassOptionError
from spmd.passes.rewrite import builder_at, replace_and_prune

#: Pieces of a device's tile that are tried.
_MULTIPLES = (1, 2, 4)
#: Most parts of a product, and most devices of a group.
_MAX_PARTS, _MAX_RING = 64, 8


@register_pass
@dataclass(frozen=True)
class WindowedEinsum(Simplifier):
    """dot(all-gather(x), y)  =>  dot(x, y) and, part by part, dot(collective-permute(..), y)
    reduce-scatter(dot(x, y))  =>  collective-permute(.. + dot(part of x, y)) + dot(part of x, y)

    Parts go round in circles of the collective's groups: as many bytes are sent. ``chunks``: of the gathered or
    scattered dimension, a multiple of the devices (0: as many, or what is best on the ``machine``). Products of large
    groups stay; where a ``machine`` is named, also those of whose time it would gain less than ``min_gain``.
    """

    name: ClassVar[str] = "windowed-einsum"
    min_gain: ClassVar[float] = 0.05
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.DOT, Opcode.REDUCE_SCATTER)
    chunks: int = 0
    machine: MachineDescription | None = field(default=None, metadata=MACHINE_OPTION)

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise PassOptionError(
                f"option chunks of {self.name}: expected 0 or more, found {self.chunks}"
            )

    def simplify(self, module: HloModule) -> Simplify:
        choice = _Choice(self, module)

        def windowed(x: HloInstruction) -> HloInstruction | None:
            found = choice.product_at(x)
            if found is None:
                return None
            if choice.cost_model is None:
                return found.in_parts(self.pieces_of(found, self.chunks), choice.builder(x))
            way, gain = choice.best(found, x, choice.cost_model)
            return found.in_parts(way, choice.builder(x)) if gain.share >= self.min_gain else None

        return windowed

    def savings(self, module: HloModule) -> dict[HloInstruction, WindowedSavings]:
        """Return the gain of each collective that could be done in parts, whether it is or not, on the named
        machine."""
        choice = _Choice(self, module)
        if choice.cost_model is None:
            return {}
        found: dict[HloInstruction, WindowedSavings] = {}
        for computation in module.computations_post_order():
            for x in tuple(self.traversal(computation)):
                product = choice.product_at(x)
                if product is not None:
                    found[product.collective] = choice.best(product, x, choice.cost_model)[1]
        return found

    def matched(self, x: HloInstruction) -> Windowed | None:
        """Return the windowed einsum whose last instruction is ``x``; None if there is none."""
        found = gathered_product(x) if x.opcode is Opcode.DOT else scattered_product(x)
        small = found is not None and found.tile and found.ring.size <= _MAX_RING
        return found if small else None

    def tried(self, found: Windowed) -> tuple[int, ...]:
        """Return the numbers of chunks to estimate; the best is used."""
        if self.chunks:
            return (self.chunks,)
        return tuple(found.ring.size * n for n in _MULTIPLES)

    def pieces_of(self, found: Windowed, chunks: int) -> tuple[Piece, ...]:
        """Return the pieces of each device's tile."""
        wanted = max(1, min(chunks, _MAX_PARTS) // found.ring.size)
        return pieces_of(found.tile, wanted)


Windowed: TypeAlias = GatheredProduct | ScatteredProduct


class _Choice:
    """Choice of the products of a module that are computed in parts, and of the parts. cost_model: of the machine, if
    one is named."""

    def __init__(self, options: WindowedEinsum, module: HloModule) -> None:
        self._options = options
        self._scope, self._effects = ModuleScope(module), SideEffects()
        machine = options.machine
        self.cost_model = WindowedCostModel(module, machine) if machine else None
        self._needing = None if self.cost_model is None else self._look(module, self.cost_model)

    def builder(self, x: HloInstruction) -> Builder:
        return builder_at(x, self._scope)

    def product_at(self, x: HloInstruction) -> Windowed | None:
        """Return the product with its collective, if no other work is known to hide that."""
        found = self._options.matched(x)
        if found is None or (self._needing is not None and found.collective not in self._needing):
            return None
        return found

    def best(
        self, found: Windowed, x: HloInstruction, cost_model: WindowedCostModel
    ) -> tuple[tuple[Piece, ...], WindowedSavings]:
        """Return the fastest division into pieces, and its gain."""
        options = self._options
        ways = dict.fromkeys(options.pieces_of(found, n) for n in options.tried(found))
        savings = {way: self._gain(found, way, x, cost_model) for way in ways}
        way = min(savings, key=lambda one: savings[one].parts)
        return way, savings[way]

    def _gain(
        self,
        found: Windowed,
        pieces: tuple[Piece, ...],
        x: HloInstruction,
        cost_model: WindowedCostModel,
    ) -> WindowedSavings:
        """Return the gain of computing ``x`` in ``pieces``, which are written, estimated and removed again."""
        builder = self.builder(x)
        before = len(builder.computation)
        value = found.in_parts(pieces, builder)
        made = builder.computation.newest(len(builder.computation) - before)
        gain = cost_model.gain(found.dot, found.collective, made)
        replace_and_prune(value, x, self._effects)
        return gain

    def _look(self, module: HloModule, cost_model: WindowedCostModel) -> dict[HloInstruction, None]:
        """Return the collectives that no other work hides."""
        needing: dict[HloInstruction, None] = {}
        for computation in module.computations_post_order():
            candidates = computation.with_opcode(*self._options.opcodes)
            found = [self._options.matched(x) for x in candidates]
            collectives = [x.collective for x in found if x is not None]
            if collectives:
                needing.update(dict.fromkeys(cost_model.needing(computation, collectives)))
        return needing
