"""Compile functions of TensorFlow and write modules, inputs and outputs to a folder, as `build` does for JAX.

    python -m benchmarks.zoo.build_tensorflow --devices 1 --folder F --names NAME...

Run by `python -m benchmarks.zoo --tensorflow PYTHON` in TensorFlow's environment. It writes F/NAME/1/: module.pb
(before optimization; the text would lack large constants), inputs.npz, jax.npz and case.json, or F/NAME/error.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 20


def stored(array: Any) -> Any:
    """The array, or its bits where NumPy's file format cannot name the type."""
    array = np.asarray(array)
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def nudged(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    signs = np.random.default_rng(99).integers(-1, 2, array.shape)
    return (array * (1 + np.finfo(array.dtype).eps * signs)).astype(array.dtype)


def build_case(name: str, folder: Path) -> None:
    import tensorflow as tf

    from benchmarks.zoo.families import tensorflow_programs

    program = getattr(tensorflow_programs, name)()
    function = tf.function(program.function, jit_compile=True)
    arguments = [tf.constant(x) for x in program.arguments]

    def outputs(arguments: Any) -> list[Any]:
        return [stored(x.numpy()) for x in tf.nest.flatten(function(*arguments))]

    start = time.perf_counter()
    found = outputs(arguments)
    seconds = time.perf_counter() - start
    runs = dict.fromkeys(("sharded", "unsharded", "rounded"), found)
    runs["nudged"] = outputs([tf.constant(nudged(x)) for x in program.arguments])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.pb").write_bytes(
        function.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")
    )
    inputs = [*program.arguments, *captured(function.get_concrete_function(*arguments))]
    np.savez(folder / "inputs.npz", **{f"arg{k}": stored(x) for k, x in enumerate(inputs)})
    arrays = {f"{run}{k}": x for run, xs in runs.items() for k, x in enumerate(xs)}
    np.savez(folder / "jax.npz", **arrays)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        function(*arguments)
        times.append(1e3 * (time.perf_counter() - start))
    case = {
        "devices": 1,
        "outputs": [{"path": f"[{k}]", "dtype": x.dtype.name} for k, x in enumerate(found)],
        "xla": {"compile_s": seconds, "step_ms": min(times)},
    }
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def captured(concrete: Any) -> list[Any]:
    """Values of the variables and tensors that a function reads, in the order in which the module takes them."""
    variables = {id(variable.handle): variable for variable in concrete.variables}
    return [variables.get(id(x), x).numpy() for x in concrete.captured_inputs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="+", required=True)
    parser.add_argument("--devices", default="1")
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    for name in options.names:
        root = options.folder / name
        root.mkdir(parents=True, exist_ok=True)
        try:
            build_case(name, root / "1")
        except Exception:  # noqa: BLE001 - the reason is for the table
            (root / "error.json").write_text(json.dumps({"crashed": traceback.format_exc()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
