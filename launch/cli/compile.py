"""`spmd compile MODULE -o F.spmdx`: compile ahead of time; `spmd run F.spmdx` runs it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from launch.cache.cache_folder import find_code_by_sources
from launch.cache.compile_afresh import compile_warning
from launch.cli.arguments import add_machine, add_memory_limit, add_module_arguments
from launch.cli.output_path import require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module
from launch.ranks.messages import printable
from launch.target.engine_choice import gpu_options
from runtime.codegen.llvm.jit import host_jit
from runtime.cpu.precompile import begin_fixed_code
from runtime.executable import Executable
from runtime.saved import save_bytes
from runtime.saved_archive import code_bytes
from spmd.output_file import write_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile a module to a file that `spmd run`, `bench` and `profile` accept in its place."
    )
    add_module_arguments(parser)
    add_machine(parser)
    add_memory_limit(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="F.spmdx", required=True, help="write the executable"
    )
    parser.add_argument(
        "--with-code",
        action="store_true",
        help="also write machine code for this processor, which `spmd run --trust` uses; this loads the program, so "
        "this process needs the memory of all devices",
    )
    parser.add_argument(
        "--gpu-code",
        type=gpu_architecture,
        metavar="sm_90",
        help="also write the Triton kernels of attention and ragged products, compiled for GPUs of this architecture; "
        "`spmd run --trust` uses them, so that machines with such GPUs need no Triton",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_writable(options.output)
    if options.with_code:
        host_jit().collected = {}
        find_code_by_sources()
    module = read_module(options)
    executable, warning = compile_warning(module, options.devices, compile_options(options))
    sys.stderr.write(warning)
    code = _code_of(executable) if options.with_code else {}
    if options.gpu_code:
        code |= _gpu_code_of(executable, options.gpu_code)
    write_file(options.output, save_bytes(executable, code_bytes(code)))
    print(
        f"{options.output}: {printable(executable.program.name, keep='')} for {executable.num_devices} devices, "
        f"compiled in {sum(executable.compile_seconds.values()):.2f} s"
    )
    return 0


def _code_of(executable: Executable) -> dict[str, Callable[[], bytes]]:
    """Return the machine code of a step, on devices of a process and on ranks, with that which compiling has used."""
    begin_fixed_code(executable.num_devices)
    executable.load_devices()
    collected, host_jit().collected = host_jit().collected or {}, None
    return collected


def _gpu_code_of(executable: Executable, arch: str) -> dict[str, Callable[[], bytes]]:
    """Return the code of the Triton kernels for GPUs of ``arch``, with the options that the environment sets."""
    from runtime.gpu.precompile import (
        triton_code,
    )  # deferred: it brings the planner of GPU programs

    return triton_code(executable, arch, replace(gpu_options(), triton=True))


def gpu_architecture(text: str) -> str:
    """Return ``text``, the architecture of a GPU. Raises ArgumentTypeError if it is none."""
    if re.fullmatch(r"sm_[0-9]{2,3}", text) is None:
        raise argparse.ArgumentTypeError(f"expected an architecture such as sm_90, found {text!r}")
    return text
