"""Lower programs of the zoo, run them with JAX, and write modules, inputs and outputs to a folder.

    python -m benchmarks.zoo.build --devices 1,4,8 --folder F --names NAME...

Run by `python -m benchmarks.zoo` in JAX's environment. For each program and number of devices it writes
F/NAME/DEVICES/: module.hlo (before optimization), peer.hlo (XLA CPU's program), inputs.npz, jax.npz and case.json.
jax.npz holds the outputs of four runs: `sharded`, `unsharded` (the program built for one device), `nudged` (the latter
on inputs that differ in their last bits, which measures how well-conditioned the outputs are) and `rounded` (the
unsharded program with every rounding to a narrow type done). The reason why
JAX cannot build or run a program is written to F/NAME/error.json, so that the other programs have their turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Steps that are timed; the least time counts, since the machine may do other work.
STEPS = 20


@dataclass(frozen=True)
class Placed:
    """Flat arguments on the host, and the sharding of each (None: JAX chooses)."""

    arrays: list[Any]
    shardings: list[Any]
    tree: Any

    @classmethod
    def of(cls, arguments: tuple[Any, ...]) -> Placed:
        import jax
        import numpy as np

        leaves, tree = jax.tree.flatten(arguments)
        placed = [isinstance(x, jax.Array) and x.committed for x in leaves]
        shardings = [x.sharding if p else None for x, p in zip(leaves, placed, strict=True)]
        return cls([np.asarray(x) for x in leaves], shardings, tree)

    def fresh(self, arrays: list[Any]) -> tuple[Any, ...]:
        import jax

        placed = [
            a if s is None else jax.device_put(a, s)
            for a, s in zip(arrays, self.shardings, strict=True)
        ]
        return tuple(jax.tree.unflatten(self.tree, jax.block_until_ready(placed)))


@dataclass(frozen=True)
class Prepared:
    """A program compiled by XLA CPU."""

    program: Any
    placed: Placed
    lowered: Any
    #: None where XLA CPU cannot compile the program.
    compiled: Any
    #: Time of the compilation, and processor time of all threads in it.
    seconds: float
    cpu_seconds: float

    @classmethod
    def of(cls, program: Any) -> Prepared:
        import jax

        placed = Placed.of(program.arguments)
        lowered = program.function.lower(*program.arguments)
        start, cpu = time.perf_counter(), time.process_time()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError:
            compiled = None
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        return cls(program, placed, lowered, compiled, seconds, cpu_seconds)

    def run(self, arrays: list[Any], compiled: Any = None) -> list[Any]:
        import jax

        outputs = (compiled or self.compiled)(*self.placed.fresh(arrays))
        return [host(x) for x in jax.tree.leaves(jax.block_until_ready(outputs))]

    def run_rounded(self, arrays: list[Any]) -> list[Any]:
        """Run with every rounding to a narrow type done, which XLA CPU leaves out where it computes in f32."""
        options = {"xla_allow_excess_precision": False}
        return self.run(arrays, self.lowered.compile(compiler_options=options))

    def step_ms(self) -> float:
        import jax

        times = []
        for _ in range(STEPS):
            arguments = self.placed.fresh(self.placed.arrays)
            start = time.perf_counter()
            jax.block_until_ready(self.compiled(*arguments))
            times.append(1e3 * (time.perf_counter() - start))
        return min(times)

    def parameters(self) -> list[int]:
        return kept_arguments(self.lowered, len(self.placed.arrays))


def kept_arguments(lowered: Any, count: int) -> list[int]:
    """Numbers of the flat arguments, `count` in all, that the module takes."""
    kept = lowered._lowering.compile_args.get("kept_var_idx")
    return list(range(count)) if kept is None else sorted(kept)


def host(array: Any) -> Any:
    import jax
    import numpy as np

    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        array = jax.random.key_data(array)
    return np.asarray(array)


def stored(array: Any) -> Any:
    """The array, or its bits where NumPy's file format cannot name the type."""
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:
        return array.view(f"u{array.dtype.itemsize}")
    return array


def nudged(arrays: list[Any]) -> list[Any]:
    """Copies of the floating-point arrays whose elements are moved by -1, 0 or 1 units in the last place, about."""
    import jax.numpy as jnp
    import numpy as np

    rng, moved = np.random.default_rng(99), []
    for array in arrays:
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize >= 2:
            epsilon = float(jnp.finfo(array.dtype).eps)
            factor = 1 + epsilon * rng.integers(-1, 2, array.shape)
            array = (array.astype(np.float64) * factor).astype(array.dtype)
        moved.append(array)
    return moved


def peer_text(compiled: Any) -> str:
    module = compiled.runtime_executable().hlo_modules()[0]
    options = sys.modules[type(module).__module__].HloPrintOptions()
    options.print_metadata = False
    return str(module.to_string(options))


def outputs_of_runs(ours: Prepared, reference: Prepared, text: str) -> dict[str, list[Any]]:
    """Outputs of JAX's runs of the program whose module is `text`.

    The unsharded ones stand for those of a program that XLA CPU cannot compile for several devices.
    """
    arrays = ours.placed.arrays
    unsharded = reference.run(arrays)
    runs = {
        "sharded": unsharded if ours.compiled is None else ours.run(arrays),
        "unsharded": unsharded,
        "nudged": reference.run(nudged(arrays)),
        "rounded": unsharded,
    }
    if any(narrow in text for narrow in ("bf16[", "f16[", "f8e", "f4e")):
        runs["rounded"] = reference.run_rounded(arrays)
    for name, outputs in runs.items():
        if [x.shape for x in outputs] != [x.shape for x in unsharded]:
            raise ValueError(f"outputs of the {name} run have other shapes")
    return runs


def write_case(folder: Path, ours: Prepared, reference: Prepared, devices: int) -> None:
    import jax
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    text = ours.lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    (folder / "module.hlo").write_text(text)
    arrays = ours.placed.arrays
    inputs = {f"arg{k}": stored(arrays[i]) for k, i in enumerate(ours.parameters())}
    np.savez(folder / "inputs.npz", **inputs)
    runs = outputs_of_runs(ours, reference, text)
    sharded = runs["sharded"]
    np.savez(
        folder / "jax.npz",
        **{f"{name}{k}": stored(x) for name, xs in runs.items() for k, x in enumerate(xs)},
    )
    with contextlib.suppress(Exception):  # the peer's text is an extra
        (folder / "peer.hlo").write_text(peer_text(ours.compiled))
    shapes = ours.lowered.out_info
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(shapes)[0]]
    case = {
        "devices": devices,
        "jax": jax.__version__,
        # The functions that it calls are in this process, and in no file.
        "calls_python": "_callback" in text or "CustomSPMDPartitioning" in text,
        "outputs": [
            {"path": path, "dtype": x.dtype.name} for path, x in zip(paths, sharded, strict=True)
        ],
        "xla": {}
        if ours.compiled is None
        else {
            "compile_s": ours.seconds,
            "compile_cpu_s": ours.cpu_seconds,
            "step_ms": ours.step_ms(),
            "memory": memory_of(ours.compiled),
        },
    }
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def memory_of(compiled: Any) -> int:
    """Bytes of arguments, outputs and temporaries of one device."""
    found = compiled.memory_analysis()
    sizes = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return int(sizes - found.alias_size_in_bytes)


def prepare_jax(devices: int) -> None:
    """Have JAX, which is not imported yet, run on that many devices of the processor."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_TRACEBACK_FILTERING"] = "off"
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"


def build_cases(name: str, counts: list[int], folder: Path) -> None:
    from benchmarks.zoo.registry import builder_of

    build = builder_of(name)
    reference = Prepared.of(build(1))
    for count in counts:
        ours = reference if count == 1 else Prepared.of(build(count))
        write_case(folder / str(count), ours, reference, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="+", required=True)
    parser.add_argument("--devices", default="1,4,8")
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    counts = [int(n) for n in options.devices.split(",")]
    prepare_jax(max(counts))
    for name in options.names:
        folder = options.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            build_cases(name, counts, folder)
        except Exception:  # noqa: BLE001 - the reason is for the table
            (folder / "error.json").write_text(json.dumps({"crashed": traceback.format_exc()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
