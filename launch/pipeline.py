"""The compile driver: the stages a module goes through, in order. Read this first.

    logical ── partitioner ──► partitioned ── simplify ──► optimized ── scheduler ──► scheduled
            ── buffer assignment ──► buffers ── thunk emission ──► thunks = Executable

``stages`` yields the module after each stage, so every tool (opt, stats, walkthrough) sees the same pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from itertools import islice, takewhile

from collectives.schedule.scheduled_overlap import ScheduledOverlap, scheduled_overlap
from launch.data.bounded_results import with_sizes
from launch.options import CompileOptions
from launch.stages import collective_pipelines
from launch.stages.collective_pipelines import HidingNotes
from launch.target.host_memory import place_offloaded_values
from partitioner.spmd_partitioner import SpmdPartitioner, partitioned, require_devices
from runtime.compile import build_executable, schedule_module
from runtime.executable import Executable
from runtime.fusion.attention.attention_fusion import AttentionFusion
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.fusion.while_loop_fusion import WhileLoopFusion
from runtime.layout.convolution_canonicalization import ConvolutionCanonicalization
from runtime.layout.layout_assignment import LAYOUT
from spmd.analysis.group_members import require_every_device
from spmd.analysis.static_shapes import require_values
from spmd.hlo import HloModule, Stage
from spmd.hlo.clone import clone_module
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.passes.all_passes import ANNOTATION, LEGALIZATION, OPENING, SIMPLIFICATION
from spmd.passes.attention_expander import AttentionExpander
from spmd.passes.f8_dot_rewriter import F8DotRewriter
from spmd.passes.pipeline import AfterPass, Application, Pipeline, Progress, run_pipelines
from spmd.shape import PrimitiveType
from spmd.text.stage import device_count, guess_stage
from spmd.verifier.stages import has_external_sharding
from spmd.verifier.verifier import verify

#: First pipeline of a program that is partitioned already.
OPEN = Pipeline("open", OPENING)

#: Pipeline of a program that is scheduled already, which keeps its order; others go through all of ``optimization``.
LEGALIZE = Pipeline("legalization", LEGALIZATION)
#: The same for a program whose calls of fused attention are computed by a library.
_LEGALIZE_ALL_ELSE = replace(
    LEGALIZE, passes=tuple(x for x in LEGALIZATION if not isinstance(x, AttentionExpander))
)

#: Pipeline for GPUs that multiply 8-bit floats; also before partitioning, so that quantized values are gathered.
F8_PRODUCTS = Pipeline("f8-products", (F8DotRewriter(),))
#: Pipeline for GPUs, whose kernels hold the blocks of score matrices; before loops and layouts are final.
ATTENTION = Pipeline("attention", (AttentionFusion(),))
#: Pipeline for GPUs, whose library takes filters in one order; before layouts are chosen.
CONVOLUTIONS = Pipeline("convolutions", (ConvolutionCanonicalization(),))


def optimization(options: CompileOptions) -> tuple[Pipeline, ...]:
    """Return the pipelines on the per-device program, in order."""
    return (
        _LEGALIZE_ALL_ELSE if options.keep_attention_calls else LEGALIZE,
        Pipeline("simplification", SIMPLIFICATION, repeated=True),
        *((F8_PRODUCTS,) if _has_f8_products(options.machine) else ()),
        *collective_pipelines.on_optimized(options),
        Pipeline("cleanup", SIMPLIFICATION, repeated=True, after_change=True),
        *_for_gpu(options),
        Pipeline("annotation", ANNOTATION),
        Pipeline("layout", LAYOUT),
    )


def _has_f8_products(machine: MachineDescription) -> bool:
    """Return whether ``machine`` is a GPU whose tensor cores multiply 8-bit floats."""
    return machine.is_gpu and any(kind is PrimitiveType.F8E4M3FN for kind, _ in machine.rates)


def _for_gpu(options: CompileOptions) -> tuple[Pipeline, ...]:
    if not options.machine.is_gpu:
        return ()
    fuses_attention = options.fusion and options.attention_fusion
    return (ATTENTION, CONVOLUTIONS) if fuses_attention else (CONVOLUTIONS,)


#: On the schedule, so that memory is known: instructions become kernels.
FUSION = Pipeline("fusion", (WhileLoopFusion(), PriorityFusion()))
#: Fraction of the machine's ``program_bytes`` that fusion may use.
FUSION_MEMORY = 0.9


@dataclass
class Compilation:
    """A module on its way to ``machine``, and the seconds each stage took.

    ``partitioner``: the one that partitioned it, which knows why; None for a module that came partitioned.
    ``hiding``: what the passes say that hide collectives.
    ``after_pass`` is called after every pass on the per-device program.
    ``optimized``: how far the pipelines of ``optimization`` have run.
    """

    module: HloModule
    devices: int
    machine: MachineDescription = field(default_factory=machine_named)
    partitioner: SpmdPartitioner | None = None
    hiding: HidingNotes = field(default_factory=HidingNotes)
    after_pass: AfterPass | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    optimized: Progress = field(default_factory=Progress)

    @property
    def overlap(self) -> ScheduledOverlap | None:
        """The report of the latency-hiding scheduler, for the collectives that ``module`` has in the end; None if it
        did not run.
        """
        if self.hiding.report is None:
            return None
        return scheduled_overlap(self.hiding.report, self.machine, self.hiding.blocking)

    def record_notes(self, done: Application) -> None:
        """Keep the notes of an application of a pass, and go on with ``after_pass``."""
        self.hiding.record(done.notes)
        if self.after_pass is not None:
            self.after_pass(done)


def stages(
    module: HloModule, devices: int | None, options: CompileOptions
) -> Iterator[tuple[str, Compilation]]:
    """Yield the module after each HLO stage. Each stage runs when the next item is requested."""
    require_values(module)
    module = with_sizes(module, partitioned=is_partitioned(module, options))
    count = devices if devices is not None else device_count(module)
    compilation = Compilation(module, count, options.machine)
    yield "logical", compilation
    yield _after(compilation, options, "partitioned", _partition)
    yield from later_stages(compilation, options)


def later_stages(
    compilation: Compilation, options: CompileOptions
) -> Iterator[tuple[str, Compilation]]:
    """Yield a partitioned module after each of the stages that follow. Each stage runs when the next item is
    requested.
    """
    yield _after(compilation, options, "optimized", _optimize)
    yield _after(compilation, options, "scheduled", _schedule)


def _after(
    compilation: Compilation,
    options: CompileOptions,
    name: str,
    step: Callable[[Compilation, CompileOptions], HloModule],
) -> tuple[str, Compilation]:
    """Carry a compilation through one stage, and return it with the stage's name."""
    start = time.perf_counter()
    compilation.module = step(compilation, options)
    verify(compilation.module)
    compilation.seconds[name] = time.perf_counter() - start
    return name, compilation


def forked(
    module: HloModule, devices: int | None, options: CompileOptions, other: CompileOptions
) -> tuple[Compilation, Compilation]:
    """Return the compilations of ``module`` with ``options`` and with ``other``, as far as their pipelines are equal:
    these run once, and the second compilation gets a copy. ``later_stages`` takes each to its end.

    The module must not be scheduled, and ``other`` may differ from ``options`` in ``without`` alone.
    """
    _, (_, compilation) = islice(stages(module, devices, options), 2)
    pairs = zip(optimization(options), optimization(other), strict=False)
    common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    compilation.optimized = run_pipelines(compilation.module, common, compilation.after_pass)
    copy = replace(
        compilation,
        module=clone_module(compilation.module),
        partitioner=None,
        hiding=HidingNotes(),
        seconds=dict(compilation.seconds),
    )
    return compilation, copy


def compile_module(
    module: HloModule,
    devices: int | None = None,
    options: CompileOptions | None = None,
    *,
    on_partitioned: Callable[[SpmdPartitioner], None] | None = None,
) -> Executable:
    """Carry a logical (or per-device) module through all stages to an executable. ``module`` stays as it is.

    ``on_partitioned`` is called with the partitioner after its run, unless the module is partitioned already.
    """
    options = options or CompileOptions()
    given = module
    for name, compilation in stages(module, devices, options):
        if name == "logical":
            given = compilation.module
        partitioner = compilation.partitioner
        if name == "partitioned" and on_partitioned is not None and partitioner is not None:
            on_partitioned(partitioner)  # now: later stages replace the instructions that it knows
    start = time.perf_counter()
    logical = None if is_partitioned(module, options) else given
    executable = build_executable(
        compilation.module,
        check=options.check,
        logical=logical,
        memory_limit=options.memory_limit,
        result=given.entry.root.shape,
    )
    compilation.seconds["thunks"] = time.perf_counter() - start
    executable.compile_seconds = dict(compilation.seconds)
    executable.overlap = compilation.overlap
    executable.program.host.callbacks = given.host_functions.callbacks
    return executable


def partition(
    module: HloModule, devices: int | None = None, options: CompileOptions | None = None
) -> HloModule:
    """Return the per-device program of ``module`` on ``devices`` devices, before optimization."""
    for name, compilation in stages(module, devices, options or CompileOptions()):
        if name == "partitioned":
            return compilation.module
    raise AssertionError("the pipeline has a partitioned stage")


def is_partitioned(module: HloModule, options: CompileOptions) -> bool:
    if options.partitioned is not None:
        return options.partitioned
    return module.stage >= Stage.PARTITIONED or guess_stage(module) >= Stage.PARTITIONED


def _partition(compilation: Compilation, options: CompileOptions) -> HloModule:
    module = compilation.module
    if is_partitioned(module, options):
        copy = clone_module(module)
        copy.num_partitions = compilation.devices // copy.replica_count
        copy.states_partitions = True
        if copy.stage is Stage.LOGICAL:
            _drop_inner_shardings(copy)
        require_every_device(copy)
        copy.stage = max(copy.stage, Stage.PARTITIONED)
        OPEN.run(copy, compilation.after_pass)
        return copy
    require_devices(module, compilation.devices)
    if _has_f8_products(options.machine):
        module = clone_module(module)
        F8_PRODUCTS.run(module, compilation.after_pass)
    compilation.partitioner = partitioned(module, compilation.devices)
    return compilation.partitioner.result


def _drop_inner_shardings(module: HloModule) -> None:
    """Drop shardings that mean nothing: those within a module that its caller declares partitioned."""
    for x in module.all_instructions():
        if not has_external_sharding(x, module):
            x.sharding = None


def _optimize(compilation: Compilation, options: CompileOptions) -> HloModule:
    module = compilation.module
    if module.stage < Stage.SCHEDULED:
        pipelines = optimization(options)
        run_pipelines(module, pipelines, compilation.after_pass, compilation.optimized)
        place_offloaded_values(module, options.machine)
        module.stage = Stage.OPTIMIZED
    else:
        _legalize_in_order(module, compilation.after_pass)
    return module


def _legalize_in_order(module: HloModule, after_pass: AfterPass | None) -> None:
    """Replace instructions that the runtime does not support, and keep the schedule: replacements precede their first
    reader.
    """
    module.stage = Stage.PARTITIONED
    if LEGALIZE.run(module, after_pass):
        for computation in module.computations_post_order():
            computation.set_order(computation.post_order())
    module.stage = Stage.SCHEDULED


def _schedule(compilation: Compilation, options: CompileOptions) -> HloModule:
    module = schedule_module(compilation.module, options.memory_limit)
    hiding = collective_pipelines.on_scheduled(options)
    run_pipelines(module, (*fusion(options), *hiding), compilation.record_notes)
    return module


def fusion(options: CompileOptions) -> tuple[Pipeline, ...]:
    """Return the pipelines that make kernels for the machine of ``options``; none if fusion is off."""
    if not options.fusion:
        return ()
    machine = options.machine
    # Of a machine that is not here the memory is known: fusions may use it, but for what is yet to be in flight.
    memory = int(FUSION_MEMORY * machine.program_bytes)
    fuse = PriorityFusion(machine=machine, memory=memory)
    return (replace(FUSION, passes=(WhileLoopFusion(), fuse)),)
