"""`spmd opt MODULE`: transform a module without running it (XLA's hlo-opt)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import collectives.passes.all_passes  # noqa: F401 - passes of no pipeline are known by name, too
from launch.checks.equivalence import verify_equivalent
from launch.cli import UsageError
from launch.cli.arguments import add_machine, add_memory_limit, add_module_arguments
from launch.cli.opt_bisect import run_bisect
from launch.cli.output_path import require_folder, require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module, write_module, write_text
from launch.data.bounded_results import with_sizes
from launch.pipeline import Compilation, is_partitioned, optimization, stages
from launch.report.kernel_listing import (
    kernel_files,
    kernels_text,
    list_kernels,
    listing_table,
)
from launch.stages.dumps import Dumps
from launch.target.machine_option import machine_for
from partitioner.propagate_module import propagate_module
from partitioner.spmd_partitioner import require_devices
from runtime.compile import build_executable
from runtime.executable import Executable
from runtime.interpreter import settings_for_compiling
from spmd.hlo import HloModule
from spmd.hlo.clone import clone_module
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.passes.interface import PASSES, HloPass
from spmd.passes.options import parse_passes
from spmd.passes.pipeline import AfterPass, Application, Pipeline
from spmd.passes.timing import PassTimes
from spmd.verifier import verify

HLO_STAGES = ("logical", "propagated", "partitioned", "optimized", "scheduled")
KERNELS = "kernels"
EXECUTABLE_STAGES: dict[str, Callable[[Executable], str]] = {
    "buffers": Executable.dump_buffers,
    "thunks": Executable.dump_thunks,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read and verify a module, compile it up to a stage, run passes on it there, and print it."
    )
    add_module_arguments(parser, required=False)
    parser.add_argument(
        "--until",
        choices=(*HLO_STAGES, *EXECUTABLE_STAGES, KERNELS),
        default="logical",
        help="stage to stop after (default: logical); kernels: argument records, IR before and after LLVM, assembly, "
        "and predicted and measured times of the kernels for this processor",
    )
    parser.add_argument(
        "--passes",
        default="",
        metavar="A,B{X=1}",
        help="run these passes, once each in this order, on the module at that stage",
    )
    parser.add_argument(
        "--print-passes", action="store_true", help="print the names of the passes and stop"
    )
    parser.add_argument(
        "--verify-equivalent",
        action="store_true",
        help="evaluate the module before and after on random inputs; exit 1 if they differ",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="F",
        help="write to a file instead of standard output: an HloModuleProto if F ends in .pb, an HloProto if in "
        ".hlo.pb, an HloModuleProtoWithConfig if in .hlo_with_config.pb, else text",
    )
    parser.add_argument(
        "--dump-to",
        type=Path,
        metavar="DIR",
        help="write the module after every stage, in files named like XLA's dumps; with --until kernels, the files of "
        "each kernel",
    )
    parser.add_argument(
        "--dump-pass-re",
        metavar="RE",
        help="with --dump-to: also write the module before and after every pass that changed it and whose name "
        "matches RE",
    )
    add_machine(parser)
    add_memory_limit(parser)
    parser.add_argument(
        "--pass-timing",
        action="store_true",
        help="print to standard error, for each pass, how often it ran, how often it changed the module, and its CPU "
        "seconds",
    )
    parser.add_argument(
        "--bisect",
        action="store_true",
        help="evaluate the module between passes (those of --passes, else those up to the optimized stage) on random "
        "inputs; name the first pass that changes its result, and the rewrite if the pass can be stopped between "
        "rewrites; write the smallest example found into the folder of --dump-to, else the current one; exit 1 if "
        "there is such a pass",
    )
    parser.set_defaults(run=run)


@settings_for_compiling()
def run(options: argparse.Namespace) -> int:
    if options.print_passes:
        write_text("\n".join(sorted(PASSES)), None)
        return 0
    machines = (machine_for(options.machine),) if "machine=" in options.passes else ()
    passes = parse_passes(options.passes, machines)
    require_writable(options.output)
    require_folder(options.dump_to)
    module = read_module(options)
    if options.bisect:
        return _bisect(options, module, passes)
    hooks = _Hooks(_dumps(options, module), PassTimes() if options.pass_timing else None)
    compilation = _carry_until(options, module, hooks)
    before = clone_module(compilation.module)
    transform(compilation.module, passes, hooks.after_pass)
    if hooks.times is not None:
        sys.stderr.write(f"{hooks.times}\n")
    if options.verify_equivalent:
        partitioned = is_partitioned(module, compile_options(options))
        logical = None if partitioned else with_sizes(module, partitioned=False)
        verify_equivalent(logical or before, compilation.module, logical)
    if options.until in HLO_STAGES:
        write_module(compilation.module, options.output)
        return 0
    executable = build_executable(compilation.module)
    if hooks.dumps is not None:
        hooks.dumps.executable(executable)
    if options.until == KERNELS:
        write_text(_kernels(executable, compilation.machine, hooks.dumps), options.output)
    else:
        write_text(EXECUTABLE_STAGES[options.until](executable), options.output)
    return 0


def _kernels(executable: Executable, machine: MachineDescription, dumps: Dumps | None) -> str:
    """Return the listing of all kernels, or their table alone if their texts are in files."""
    if machine.is_gpu:
        raise UsageError(f"--until kernels lists CPU kernels, but {machine.name} is a GPU machine")
    kernels = list_kernels(executable.program, machine)
    if dumps is None:
        return kernels_text(kernels)
    for kernel in kernels:
        dumps.files(kernel.stem, kernel_files(kernel))
    return listing_table(kernels)


def transform(
    module: HloModule, passes: tuple[HloPass, ...], after: AfterPass | None = None
) -> None:
    """Run the passes once each and verify what they leave."""
    if passes:
        _given(passes).run(module, after)
        verify(module)


def _given(passes: tuple[HloPass, ...]) -> Pipeline:
    return Pipeline("passes", passes)


def _bisect(options: argparse.Namespace, module: HloModule, passes: tuple[HloPass, ...]) -> int:
    """Bisect the passes that were given, on the module at its stage; else those between partitioned and optimized."""
    folder = options.dump_to or Path()
    if passes:
        return run_bisect(_carry_until(options, module).module, [_given(passes)], folder)
    if options.until not in ("optimized", "scheduled"):
        raise UsageError(
            "--bisect needs --passes, or --until optimized to bisect the passes up to that stage"
        )
    options.until = "partitioned"
    return run_bisect(
        _carry_until(options, module).module, optimization(compile_options(options)), folder
    )


@dataclass(frozen=True)
class _Hooks:
    """Observers of a compilation: dumps and times of passes."""

    dumps: Dumps | None = None
    times: PassTimes | None = None

    def after_pass(self, done: Application) -> None:
        if self.times is not None:
            self.times.add(done)
        if self.dumps is not None:
            self.dumps.after_pass(done)


def _dumps(options: argparse.Namespace, module: HloModule) -> Dumps | None:
    if options.dump_to is not None:
        return Dumps(options.dump_to, module.name, options.dump_pass_re)
    if options.dump_pass_re is not None:
        raise UsageError("--dump-pass-re needs --dump-to DIR")
    return None


def _carry_until(
    options: argparse.Namespace, module: HloModule, hooks: _Hooks | None = None
) -> Compilation:
    """Return the module at the wanted HLO stage; at the last HLO stage for stages below HLO."""
    wanted = options.until if options.until in HLO_STAGES else HLO_STAGES[-1]
    for stage, compilation in _stages(options, module):
        if hooks is not None:
            compilation.after_pass = hooks.after_pass
            if hooks.dumps is not None:
                hooks.dumps.stage(stage, compilation)
        if stage == wanted:
            return compilation
    raise AssertionError(f"the pipeline has a {wanted} stage")


def _stages(options: argparse.Namespace, module: HloModule) -> Iterator[tuple[str, Compilation]]:
    """Yield the pipeline's stages; of a logical module also the propagated one, which is only for display."""
    partitioned = is_partitioned(module, compile_options(options))
    if partitioned and options.until == "propagated":
        raise UsageError(f"{module.name} is partitioned already: it has no propagated stage")
    for stage, compilation in stages(module, options.devices, compile_options(options)):
        yield stage, compilation
        if stage == "logical" and options.until == "propagated":
            require_devices(module, compilation.devices)
            shown = propagate_module(module, compilation.devices)
            yield "propagated", replace(compilation, module=shown)
