"""Sums of an attention kernel: the accumulators of its sinks, and the softmax that rescales them."""

from __future__ import annotations

from runtime.gpu.triton.axes import AxisKind, Blocks, expanded
from runtime.gpu.triton.elements import cast
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.triton.softmax import RowFactor, Softmax
from runtime.gpu.triton.structure import AttentionStructure, Sink
from runtime.gpu.triton.tiles import Tile, Tiles
from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

_F32 = PrimitiveType.F32
#: Names of the running row maximum and of an infinite number in kernels.
MAXIMUM, _LEAST = "m", 'float("-inf")'
_NEUTRAL = {ReductionKind.SUM: "0.0", ReductionKind.MAX: _LEAST}


class Sums:
    """Writer of the loop of a kernel, and of the values of its sinks after it. Sums are kept in f32."""

    def __init__(
        self, structure: AttentionStructure, blocks: Blocks, tiles: Tiles, lines: Lines
    ) -> None:
        self._structure, self._blocks, self._tiles, self._lines = structure, blocks, tiles, lines
        self._tile_axes = (structure.grid, structure.loop)

    def write(self) -> None:
        """Add all lines of the sinks, and make their results the values of their instructions."""
        softmax = self._structure.softmax
        sums = {
            sink: f"a{n}"
            for n, sink in enumerate(self._structure.sinks)
            if softmax is None or sink.instruction is not softmax.maximum
        }
        for sink, acc in sums.items():
            sizes = ", ".join(str(self._blocks.length(axis)) for axis in sink.acc_axes)
            first = f"tl.full([{sizes}], {_NEUTRAL[sink.kind]}, tl.float32)"
            self._lines.add(Level.PROLOGUE, f"{acc} = {first}")
        if softmax is not None:
            self._begin_softmax(softmax, sums)
        for sink, acc in sums.items():
            self._lines.add(Level.LOOP, f"{acc} = {self._added(sink, acc)}")
        if softmax is not None:
            self._end_softmax(softmax, sums)
        factors = softmax.factors if softmax is not None else {}
        # Factors such as the sum of exponentials are sinks without factors.
        for sink in sorted(sums, key=lambda sink: len(factors.get(sink.instruction, ()))):
            value = self._with_factors(sink, sums[sink], factors.get(sink.instruction, ()))
            self._bind(sink, value)

    # ---- sums
    def _added(self, sink: Sink, acc: str) -> str:
        """Return the expression of ``acc`` combined with the scores of a block, or plus their product."""
        scores = self._tiles.full(sink.scores, self._structure.axes)
        name = scores.name
        if self._structure.softmax is None:  # its exponentials are 0 beyond the end
            name = self._inside(name, _NEUTRAL[sink.kind])
        wide = cast(name, scores.kind, _F32)
        if sink.kind is ReductionKind.MAX:
            return f"larger({acc}, tl.reduce({wide}, 1, larger))"
        if sink.other is None:
            return f"{acc} + tl.sum({wide}, 1)"
        other = self._tiles.full(sink.other, sink.other_axes)
        kinds = [axis.kind for axis in other.axes]
        if kinds == [AxisKind.LOOP, AxisKind.DEPTH]:
            left = Tile(name, scores.kind, scores.axes, Level.LOOP)
            return self._tiles.product(sink.instruction, left, other, acc=acc)
        if kinds == [AxisKind.LOOP]:
            factor = expanded(cast(other.name, other.kind, _F32), other.axes, self._tile_axes)
            return f"{acc} + tl.sum({wide} * {factor}, 1)"
        raise NoTritonKernelError(f"{sink.instruction.name}: a factor of other axes")

    def _inside(self, name: str, other: str) -> str:
        """Return the name of the scores ``name`` with ``other`` in place of those beyond the end of the loop's axis."""
        inside = self._tiles.memory.inside(self._structure.loop)
        if inside is None:
            return name
        mask = expanded(inside, self._tile_axes[1:], self._tile_axes)
        return self._lines.assigned(Level.LOOP, f"tl.where({mask}, {name}, {other})")

    def _bind(self, sink: Sink, value: str) -> None:
        kind = sink.instruction.array_shape.element_type
        name = self._lines.assigned(Level.EPILOGUE, cast(value, _F32, kind))
        self._tiles.bind(
            sink.instruction, sink.axes, Tile(name, kind, sink.acc_axes, Level.EPILOGUE)
        )

    # ---- softmax
    def _begin_softmax(self, softmax: Softmax, sums: dict[Sink, str]) -> None:
        """Add the maximum and the exponentials of a block, and rescale the sums by exp(old maximum - new maximum).

        While all scores of a row are -inf, exponentials are relative to 0, so that they are 0 instead of nan.
        """
        lines, rows = self._lines, self._tile_axes[:1]
        first = f"tl.full([{self._blocks.grid}], {_LEAST}, tl.float32)"
        lines.add(Level.PROLOGUE, f"{MAXIMUM} = {first}")
        tile = self._tiles.full(softmax.scores, self._structure.axes)
        scores = lines.assigned(Level.LOOP, cast(tile.name, tile.kind, _F32))
        scores = self._inside(scores, _LEAST)
        text = f"larger({MAXIMUM}, tl.reduce({scores}, 1, larger))"
        new = lines.assigned(Level.LOOP, text)
        base = lines.assigned(Level.LOOP, f"tl.where({new} == {_LEAST}, 0.0, {new})")
        rescale = lines.assigned(Level.LOOP, f"tl.exp({MAXIMUM} - {base})")
        kind = softmax.exponential.array_shape.element_type
        text = f"tl.exp({scores} - {expanded(base, rows, self._tile_axes)})"
        name = lines.assigned(Level.LOOP, cast(text, _F32, kind))
        tile = Tile(name, kind, self._tile_axes, Level.LOOP)
        self._tiles.bind(softmax.exponential, self._structure.axes, tile)
        for sink, acc in sums.items():
            lines.add(Level.LOOP, f"{acc} = {acc} * {expanded(rescale, rows, sink.acc_axes)}")
        lines.add(Level.LOOP, f"{MAXIMUM} = {new}")
        for factors in softmax.factors.values():
            for each in factors:
                self._tiles.aliases[each.instruction] = each.scores

    def _end_softmax(self, softmax: Softmax, sums: dict[Sink, str]) -> None:
        """Add what makes the sums those of exponentials relative to the program's shift instead of the maximum.

        If the shift is the maximum, only the sums of rows without a finite score change: they become nan.
        """
        maximum = next(s for s in self._structure.sinks if s.instruction is softmax.maximum)
        self._bind(maximum, MAXIMUM)
        empty = self._lines.assigned(Level.EPILOGUE, f"{MAXIMUM} == {_LEAST}")
        text = f'tl.where({empty}, float("nan"), 1.0)'
        if softmax.shift is not None:
            rows = self._tiles.rows(softmax.shift, self._structure.axes)
            text = f"tl.exp(tl.where({empty}, 0.0, {MAXIMUM}) - {cast(rows.name, rows.kind, _F32)})"
        factor = self._lines.assigned(Level.EPILOGUE, text)
        for sink, acc in sums.items():
            by = expanded(factor, self._tile_axes[:1], sink.acc_axes)
            self._lines.add(Level.EPILOGUE, f"{acc} = {acc} * {by}")

    def _with_factors(self, sink: Sink, acc: str, factors: tuple[RowFactor, ...]) -> str:
        """Return the expression of ``acc`` times or divided by the values of rows of ``factors``."""
        for factor in factors:
            rows = self._tiles.rows(factor.rows, self._structure.axes)
            by = expanded(cast(rows.name, rows.kind, _F32), rows.axes, sink.acc_axes)
            sign = "/" if factor.instruction.opcode is Opcode.DIVIDE else "*"
            acc = self._lines.assigned(Level.EPILOGUE, f"{acc} {sign} {by}")
        return acc
