"""Calibration of costs other than kernels: dispatch of thunks, steps, and collectives between two devices."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from launch.calibration.memory import Arena
from launch.calibration.probes import OfCores, Probe, Seconds
from launch.calibration.timing import Samples
from launch.collective_groups import COLLECTIVE_GROUPS
from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.cpu.prediction.work import TIMED_BYTES
from runtime.executable import Executable
from spmd.lazy_dataclass import dataclass
from spmd.machine.bounds import MOST_SLOWDOWN
from spmd.machine.description import MemoryLevel, byte_seconds
from spmd.machine.exchange import Exchange
from spmd.machine.fit import nonnegative_fit
from spmd.text.parser import parse_module

#: Largest number of devices of the described node. It may exceed the number of cores, which devices then share.
NODE_DEVICES = 64
#: Fewest steps that are timed in a round.
LEAST_STEPS = 10
#: Operations of successive thunks, which have different code. Thunks with equal code all have the first one.
_OPCODES = ("add", "multiply", "maximum", "subtract", "minimum", "divide")


@dataclass(frozen=True)
class ProgramSizes:
    """Sizes of the measured programs.

    thunks: numbers of thunks of two programs; the difference of their times gives the time of a thunk.
    exchanges: numbers of rounds of two programs; the difference of their times gives the time of a round, which has an
      all-reduce, a reduce-scatter and an all-gather.
    elements: numbers of f32 elements of the collectives.
    budget: approximate seconds of one round of a program.
    outputs: numbers of arrays that two programs return; the difference of their times gives the time of an output.
    products: number and size of products of a program on two devices, which exchange a few numbers after each.
    """

    thunks: tuple[int, int] = (20, 220)
    exchanges: tuple[int, int] = (1, 9)
    elements: tuple[int, ...] = (1 << 8, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
    budget: float = 0.02
    outputs: tuple[int, int] = (1, 129)
    products: tuple[int, int] = (8, 384)


@dataclass(frozen=True)
class StepProbe(Probe):
    """Probe of the elapsed time of a step of the program ``text`` on ``devices`` devices of this process."""

    text: str
    devices: int

    def compiled(self) -> Executable:
        """Compile the program without fusion and without the passes for collectives, which would combine them."""
        options = CompileOptions(partitioned=True, fusion=False, without=tuple(COLLECTIVE_GROUPS))
        return compile_module(parse_module(self.text), self.devices, options)

    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        """Compile and load the program, which allocates its own memory. Returns a function that times one round."""
        executable = self.compiled()
        inputs = executable.inputs
        state = executable.put([np.ones(argument.shape.dims, np.float32) for argument in inputs])
        return partial(self._round, partial(executable.run, state))

    def _round(self, step: Callable[[], object]) -> OfCores:
        end = time.perf_counter() + self.budget
        seconds: list[float] = []
        while len(seconds) < LEAST_STEPS or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        return (Samples.of(seconds),)


def dispatch_probes(sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes from which ``dispatch_seconds`` computes the time of a thunk."""
    return (*_chains(_OPCODES[:1], sizes), *_chains(_OPCODES, sizes))


def exchange_probes(sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes from which ``exchange`` computes the exchange between two devices."""
    return tuple(
        probe
        for count in sizes.elements
        for exchanged in (True, False)
        for probe in _rounds_of(count, sizes, exchanged=exchanged)
    )


def dispatch_seconds(sizes: ProgramSizes, seconds: Seconds) -> tuple[float, float]:
    """Return the seconds of a thunk whose code has just run, and the additional seconds of a thunk with other code."""
    uniform, unlike = (
        _added(_chains(opcodes, sizes), sizes.thunks, seconds)
        for opcodes in (_OPCODES[:1], _OPCODES)
    )
    return uniform, max(unlike - uniform, 0.0)


def output_probes(sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes from which ``step_seconds`` computes the time of a step of no thunks, and of an output."""
    return tuple(StepProbe(sizes.budget, _negations(count), 1) for count in sizes.outputs)


def step_seconds(sizes: ProgramSizes, thunk: float, seconds: Seconds) -> tuple[float, float]:
    """Return the seconds to begin and end a step, and those to return an output. thunk: seconds of a thunk."""
    probes = output_probes(sizes)
    few, _ = sizes.outputs
    each = _added(probes, sizes.outputs, seconds)
    return max(seconds[probes[0]] - few * each, 0.0), max(each - thunk, 0.0)


def wait_probes(sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes of ``wait_seconds``: products with collectives between them, and products alone."""
    texts = (_product_chain(*sizes.products, exchanged=exchanged) for exchanged in (True, False))
    return tuple(StepProbe(2 * sizes.budget, text, 2) for text in texts)


def wait_seconds(sizes: ProgramSizes, latency: float, seconds: Seconds) -> float:
    """Return the wait for the slower device at a collective 1 ms after the last one (``MachineDescription``).

    ``latency``: seconds of a collective of few numbers.
    """
    exchanged, alone = (seconds[probe] for probe in wait_probes(sizes))
    number, _ = sizes.products
    wait = max((exchanged - alone) / number - latency, 0.0)
    return wait / math.sqrt(alone / number / 1e-3)


def exchange(sizes: ProgramSizes, levels: tuple[MemoryLevel, ...], seconds: Seconds) -> Exchange:
    """Return the exchange between two devices of this process, from the times of collectives.

    Further devices of a node share the memory, so the same exchange describes them. levels: bandwidths of copies by
    working set. seconds: times of ``exchange_probes``.
    """
    cached, parts, each = byte_seconds(levels, TIMED_BYTES), [], []
    for count in sizes.elements:
        size = 4.0 * count
        farther = max(byte_seconds(levels, _DISTANCE * size) - cached, 0.0)
        parts.append((float(_COLLECTIVES), _READ * size, _TOUCHED * size * farther))
        with_them, without = (
            _added(_rounds_of(count, sizes, exchanged=exchanged), sizes.exchanges, seconds)
            for exchanged in (True, False)
        )
        each.append(max(with_them - without, _LEAST_ADDED * with_them))
    latency, byte, uncached = nonnegative_fit(parts, each)
    return Exchange(
        "devices of one process",
        NODE_DEVICES,
        1.0 / max(byte, 1e-15),
        latency,
        min(uncached, MOST_SLOWDOWN),
    )


def _added(probes: Sequence[StepProbe], counts: tuple[int, int], seconds: Seconds) -> float:
    """Return the seconds that one more thunk or collective adds to a step.

    probes: programs with ``counts`` thunks or collectives.
    """
    few, many = (seconds[probe] for probe in probes)
    added = (many - few) / (counts[1] - counts[0])
    # A difference that is not positive was disturbed. The mean of the longer program is then an upper bound.
    return added if added > 0 else many / counts[1]


def _chains(opcodes: tuple[str, ...], sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes of two chains of thunks, the shorter one first."""
    return tuple(StepProbe(sizes.budget, _chain(opcodes, n), 1) for n in sizes.thunks)


def _rounds_of(count: int, sizes: ProgramSizes, *, exchanged: bool) -> tuple[StepProbe, ...]:
    """Return the probes of two chains of rounds of ``count`` elements, the shorter one first.

    ``exchanged``: whether rounds have collectives. Otherwise they are their kernels alone.
    """
    return tuple(
        StepProbe(sizes.budget, _round_chain(count, n, exchanged=exchanged), 2)
        for n in sizes.exchanges
    )


def _chain(opcodes: tuple[str, ...], length: int) -> str:
    """Return the HLO text of a chain of ``length`` operations on short rows. ``opcodes`` are repeated in turn."""
    names = ["x", *(f"v{n}" for n in range(length))]
    lines = [
        f"  {'ROOT ' if n == length - 1 else ''}v{n} = f32[16] "
        f"{opcodes[n % len(opcodes)]}({names[n]}, y)"
        for n in range(length)
    ]
    parameters = ["  x = f32[16] parameter(0)", "  y = f32[16] parameter(1)"]
    return "\n".join(["HloModule chain", "ENTRY main {", *parameters, *lines, "}"])


#: Collectives of a round; the bytes that a device reads from its peer in them, and those of their operands and results;
#: and the largest reuse distance of these: all relative to the bytes of the all-reduce.
_COLLECTIVES, _READ, _TOUCHED, _DISTANCE = 3, 1.5, 5.0, 3.0
#: Least share of a round's time that counts as its collectives'. Noise may exceed the time of small ones.
_LEAST_ADDED = 0.01


def _product_chain(number: int, size: int, *, exchanged: bool) -> str:
    """Return the HLO text of a chain of products, in which the first row of each goes through an all-reduce."""
    square, row = f"f32[{size},{size}]", f"f32[1,{size}]"
    one = "all-reduce(t{n}), replica_groups={{}}, to_apply=sum" if exchanged else "negate(t{n})"
    lines = [
        line.format(n=n, next=n + 1)
        for n in range(number)
        for line in (
            f"  d{{n}} = {square} dot(x{{n}}, w), lhs_contracting_dims={{{{1}}}}, rhs_contracting_dims={{{{0}}}}",
            f"  t{{n}} = {row} slice(d{{n}}), slice={{{{[0:1], [0:{size}]}}}}",
            f"  r{{n}} = {row} {one}",
            f"  x{{next}} = {square} dynamic-update-slice(d{{n}}, r{{n}}, zero, zero)",
        )
    ]
    lines[-1] = lines[-1].replace("  ", "  ROOT ", 1)
    return "\n".join(
        [
            "HloModule waits, replica_count=2",
            "sum {",
            "  x = f32[] parameter(0)",
            "  y = f32[] parameter(1)",
            "  ROOT sum = f32[] add(x, y)",
            "}",
            "ENTRY main {",
            f"  x0 = {square} parameter(0)",
            f"  w = {square} parameter(1)",
            "  zero = s32[] constant(0)",
            *lines,
            "}",
        ]
    )


def _negations(count: int) -> str:
    """Return the HLO text of a program that takes and returns ``count`` arrays, as a training step does its state."""
    names = [f"v{n}" for n in range(count)]
    return "\n".join(
        [
            "HloModule outputs",
            "ENTRY main {",
            *(f"  x{n} = f32[16] parameter({n})" for n in range(count)),
            *(f"  {name} = f32[16] negate(x{n})" for n, name in enumerate(names)),
            f"  ROOT r = ({', '.join(count * ['f32[16]'])}) tuple({', '.join(names)})",
            "}",
        ]
    )


def _round_chain(count: int, length: int, *, exchanged: bool) -> str:
    """Return the HLO text of ``length`` rounds of kernels and, if ``exchanged``, of collectives of ``count`` elements.

    The operand of each collective has just been written by a kernel of the same device, as in most programs: reading
    what a peer has just written takes longer than reading what a collective has put into the own cache.
    """
    half = count // 2
    one = (
        "  a{n} = f32[{count}] all-reduce(x{n}), replica_groups={{}}, to_apply=sum",
        "  b{n} = f32[{count}] add(a{n}, a{n})",
        "  c{n} = f32[{half}] reduce-scatter(b{n}), replica_groups={{{{0,1}}}}, dimensions={{0}}, to_apply=sum",
        "  d{n} = f32[{half}] add(c{n}, c{n})",
        "  e{n} = f32[{count}] all-gather(d{n}), replica_groups={{{{0,1}}}}, dimensions={{0}}",
        "  x{next} = f32[{count}] add(e{n}, e{n})",
    )
    kernels = (
        "  b{n} = f32[{count}] add(x{n}, x{n})",
        "  d{next} = f32[{half}] add(d{n}, d{n})",
        "  x{next} = f32[{count}] add(b{n}, b{n})",
    )
    lines = [
        line.format(n=n, next=n + 1, count=count, half=half)
        for n in range(length)
        for line in (one if exchanged else kernels)
    ]
    results = (f"x{length}",) if exchanged else (f"x{length}", f"d{length}")
    types = ", ".join(("f32[{count}]", "f32[{half}]")[: len(results)])
    return "\n".join(
        [
            "HloModule exchange, replica_count=2",
            "sum {",
            "  x = f32[] parameter(0)",
            "  y = f32[] parameter(1)",
            "  ROOT sum = f32[] add(x, y)",
            "}",
            "ENTRY main {",
            f"  x0 = f32[{count}] parameter(0)",
            *([] if exchanged else [f"  d0 = f32[{half}] parameter(1)"]),
            *lines,
            f"  ROOT results = ({types.format(count=count, half=half)}) tuple({', '.join(results)})",
            "}",
        ]
    )
