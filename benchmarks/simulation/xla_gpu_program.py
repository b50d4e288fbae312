"""The program that XLA:GPU makes of a per-device module, scheduled with a profile, as the simulator reads it.

A run with a profile of its kernels compiles twice: without overlap, where each kernel is timed, and with these times.
Here the times of the first program are those of the simulator's machine.
"""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collectives.cost.roofline import RooflineEstimator
from launch.cli.programs.simulated_program import compiled_for
from launch.options import CompileOptions
from spmd.hlo import HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode_roles import CALLERS
from spmd.text.parser import parse_module

#: The part of the GPU's memory that the published runs give to the program.
_MEMORY = 0.94
_COMPILER = Path(__file__).with_name("xla_compiler.py")
_GIB = 1 << 30

#: Flags of the published runs (NVIDIA/dgxc-benchmarking, maxtext/configure.sh, bf16), with two exceptions. Kernels are
#: not tuned by trial, which needs the GPU. All-reduces are not pipelined: XLA of jax 0.10.2 then leaves all-reduces of
#: entire gradients in the loop, whose results nothing reads.
FLAGS: Mapping[str, str | bool] = {
    "xla_gpu_autotune_level": "0",
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_command_buffer": "",
    "xla_gpu_all_reduce_combine_threshold_bytes": str(2 * _GIB),
    "xla_gpu_all_gather_combine_threshold_bytes": str(2 * _GIB),
    "xla_gpu_enable_pipelined_all_gather": True,
    "xla_gpu_enable_pipelined_reduce_scatter": True,
    "xla_gpu_enable_pipelined_all_reduce": False,
    "xla_gpu_enable_while_loop_double_buffering": True,
    "xla_gpu_enable_all_gather_combine_by_dim": False,
    "xla_gpu_enable_reduce_scatter_combine_by_dim": False,
    "xla_disable_hlo_passes": "rematerialization",
}
#: Flags of the run that makes the profile, and of the run that is published.
_PROFILING: Mapping[str, str | bool] = {
    "xla_gpu_enable_latency_hiding_scheduler": False,
    "xla_gpu_disable_async_collectives": "ALLREDUCE,ALLGATHER,REDUCESCATTER",
}
_PUBLISHED: Mapping[str, str | bool] = {"xla_gpu_enable_latency_hiding_scheduler": True}


def flags_for(devices: int) -> dict[str, str | bool]:
    """Return the flags of the published run on ``devices`` GPUs, 8 a node."""
    scatters = 8 * _GIB // (512 if devices >= 512 else 256)
    return {**FLAGS, "xla_gpu_reduce_scatter_combine_threshold_bytes": str(scatters)}


@dataclass(frozen=True)
class XlaGpu:
    """XLA:GPU of the jax that ``python`` imports, which compiles for the GPU that ``spec`` describes.

    cache: the folder that keeps compiled modules.
    """

    python: Path
    spec: Path
    cache: Path

    def program(
        self, module: HloModule, flags: Mapping[str, str | bool], options: CompileOptions
    ) -> tuple[HloModule, HloModule]:
        """Return the scheduled programs of the per-device ``module`` with ``flags``, without and with a profile.

        The profile has the times of the machine of ``options``. Raises RuntimeError if XLA does not compile the module.
        """
        text = str(without_copies(module))
        node = options.machine.exchanges[0].devices
        devices = module.num_partitions
        timed = parse_module(self._compiled(text, devices, node, {**flags, **_PROFILING}))
        published = {**flags, **_PUBLISHED}
        profile = serialized(dict(times(timed, options)))
        plain = self._compiled(text, devices, node, published)
        guided = self._compiled(text, devices, node, published, profile)
        return parse_module(plain), parse_module(guided)

    def _compiled(
        self,
        text: str,
        devices: int,
        node: int,
        flags: Mapping[str, str | bool],
        profile: bytes = b"",
    ) -> str:
        stated = json.dumps(flags)
        parts = (
            text.encode(),
            stated.encode(),
            profile,
            self.spec.read_bytes(),
            str(node).encode(),
        )
        name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
        self.cache.mkdir(parents=True, exist_ok=True)
        kept = self.cache / f"{name}.hlo"
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                given, made, times_file = (
                    Path(folder) / one for one in ("in.hlo", "out.hlo", "profile")
                )
                given.write_text(text, encoding="utf-8")
                times_file.write_bytes(profile)
                command = [str(self.python), str(_COMPILER), str(given), str(made)]
                command += [
                    "--spec",
                    str(self.spec),
                    "--devices",
                    str(devices),
                    "--node",
                    str(node),
                ]
                command += ["--memory", str(_MEMORY), "--options", stated]
                command += [*(["--profile", str(times_file)] if profile else [])]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(
                        f"XLA:GPU does not compile the module: {done.stderr[-2000:]}"
                    )
                made.rename(kept)
        return kept.read_text(encoding="utf-8")


def without_copies(module: HloModule) -> HloModule:
    """Return ``module`` without copies, which StableHLO lacks, and without shardings."""
    program = clone_module(module)
    for computation in program.computations_post_order():
        for x in list(computation.instructions):
            x.sharding = None
            if x.opcode is Opcode.COPY:
                computation.replace(x, x.operand(0))
    return program


def times(module: HloModule, options: CompileOptions) -> Iterator[tuple[str, float]]:
    """Yield the names of the kernels and collectives of a scheduled ``module``, and their seconds."""
    program = compiled_for(module, None, options).module
    estimator = RooflineEstimator.of(program, options.machine)
    remaining = [program.entry]
    while remaining:
        for x in remaining.pop().instructions:
            if x.opcode in CALLERS:
                remaining += x.called_computations
                continue
            is_sent = x.opcode in KIND
            seconds = estimator.collective(x).seconds if is_sent else estimator.compute(x)
            if seconds:
                yield x.name, seconds


def serialized(seconds: Mapping[str, float]) -> bytes:
    """Return ``seconds`` of instructions as a ProfiledInstructionsProto: costs with names and microseconds."""
    costs = b""
    for name, one in seconds.items():
        field = name.encode()
        cost = b"\x0a" + _varint(len(field)) + field + b"\x11" + struct.pack("<d", one * 1e6)
        costs += b"\x0a" + _varint(len(cost)) + cost
    return costs


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))
