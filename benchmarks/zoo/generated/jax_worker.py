"""Write cases of random programs, one for each line of standard input that says `SEED FOLDER`.

    python -m benchmarks.zoo.generated.jax_worker

Run in JAX's environment. A case is a folder as `benchmarks.zoo.build` writes it, but for two runs of JAX on one device
only, `unsharded` and `nudged`, compiled without optimization and with every rounding done: that takes a fifth of the
time. Each answer is a line of standard output: `written`, or `error` with what JAX said.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

FLAGS = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1 "
    "--xla_cpu_use_fusion_emitters=false --xla_allow_excess_precision=false"
)


def write_program(seed: int, folder: Path) -> None:
    import jax
    import numpy as np

    from benchmarks.zoo.build import Placed, host, kept_arguments, nudged, stored
    from benchmarks.zoo.generated.programs import random_program
    from benchmarks.zoo.generated.seeds import devices_of

    devices = devices_of(seed)
    program, alone = random_program(seed, devices), random_program(seed, 1)
    lowered = program.function.lower(*program.arguments)
    reference = alone.function.lower(*alone.arguments).compile()
    placed = Placed.of(alone.arguments)

    def outputs(arrays: list[Any]) -> list[Any]:
        return [host(x) for x in jax.tree.leaves(reference(*placed.fresh(arrays)))]

    runs = {"unsharded": outputs(placed.arrays), "nudged": outputs(nudged(placed.arrays))}
    folder.mkdir(parents=True, exist_ok=True)
    text = lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    (folder / "module.hlo").write_text(text)
    inputs = [placed.arrays[k] for k in kept_arguments(lowered, len(placed.arrays))]
    np.savez(folder / "inputs.npz", **{f"arg{k}": stored(x) for k, x in enumerate(inputs)})
    named = {f"{run}{k}": stored(x) for run, xs in runs.items() for k, x in enumerate(xs)}
    np.savez(folder / "jax.npz", **named)
    dtypes = [x.dtype.name for x in runs["unsharded"]]
    outputs_said = [{"path": f"[{k}]", "dtype": dtype} for k, dtype in enumerate(dtypes)]
    case = {"devices": devices, "outputs": outputs_said, "runs": list(runs), "xla": {}}
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def answer(line: str) -> str:
    import jax

    seed, folder = line.split(maxsplit=1)
    Path(folder.strip()).parent.mkdir(parents=True, exist_ok=True)
    try:
        write_program(int(seed), Path(folder.strip()))
        return "written"
    except Exception:  # noqa: BLE001 - the reason is for the report
        (Path(folder.strip()).parent / "traceback.txt").write_text(traceback.format_exc())
        said = traceback.format_exc().strip().splitlines()
        return f"error {said[-1][:200]}"
    finally:
        jax.clear_caches()


def main() -> int:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_TRACEBACK_FILTERING"] = "off"
    os.environ["XLA_FLAGS"] = FLAGS
    warnings.simplefilter("ignore")  # donated arrays that no output can use
    for line in sys.stdin:
        print(answer(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
