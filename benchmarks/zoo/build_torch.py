"""Lower functions of PyTorch by PyTorch/XLA and write modules, inputs and outputs to a folder, as `build` does for JAX.

    python -m benchmarks.zoo.build_torch --devices 4 --folder F --names NAME...

Run by `python -m benchmarks.zoo --torch PYTHON` in PyTorch/XLA's environment, once for each number of devices, which a
process cannot change. Functions are sharded by `mark_sharding`. It writes F/NAME/DEVICES/: module.pb (before
optimization), inputs.npz, jax.npz and case.json, or F/NAME/error.json. Outputs are those of PyTorch/XLA on so many CPU
devices, and of PyTorch itself on one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP, STEPS = 2, 20


def stored(tensor: Any) -> Any:
    """Return a tensor's array, or its bits where NumPy cannot name the type."""
    import torch

    tensor = tensor.detach().cpu()
    return tensor.view(torch.uint16).numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()


def nudged(array: np.ndarray) -> np.ndarray:
    """Return the array with each float moved by one unit in the last place, or not."""
    if array.dtype.kind != "f":
        return array
    signs = np.random.default_rng(99).integers(-1, 2, array.shape)
    return (array * (1 + np.finfo(array.dtype).eps * signs)).astype(array.dtype)


def build_case(name: str, devices: int, folder: Path) -> None:
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm

    from benchmarks.zoo.families import torch_programs

    program = getattr(torch_programs, name)()
    arguments = program.arguments

    def lowered(arrays: Sequence[np.ndarray]) -> list[Any]:
        """Return the results, which nothing has computed yet, of arrays that lie on the devices."""
        tensors = [torch.from_numpy(x.copy()).to("xla") for x in arrays]
        program.shard(tensors, devices)
        return list(program.function(*tensors))

    def outputs(arrays: Sequence[np.ndarray]) -> list[Any]:
        return [stored(x) for x in lowered(arrays)]

    results = lowered(arguments)
    module = torch_xla._XLAC._get_xla_tensors_hlo_proto(results)
    _, inputs = torch_xla._XLAC._get_tensors_xla_device_data_node(results)
    inputs = [stored(x) for x in inputs]
    start = time.perf_counter()
    found = [stored(x) for x in results]
    seconds = time.perf_counter() - start
    alone = [stored(x) for x in program.function(*map(torch.from_numpy, map(np.copy, arguments)))]
    runs = {"sharded": found, "unsharded": alone, "rounded": found}
    runs["nudged"] = outputs([nudged(x) for x in arguments])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.pb").write_bytes(module)
    np.savez(folder / "inputs.npz", **{f"arg{k}": x for k, x in enumerate(inputs)})
    arrays = {f"{run}{k}": x for run, xs in runs.items() for k, x in enumerate(xs)}
    np.savez(folder / "jax.npz", **arrays)
    times = []
    for _ in range(WARM_UP + STEPS):
        results = lowered(arguments)
        xm.wait_device_ops()
        start = time.perf_counter()
        torch_xla._XLAC._xla_sync_multi(results, devices=[], wait=True, sync_xla_data=False)
        xm.wait_device_ops()
        times.append(1e3 * (time.perf_counter() - start))
    kinds = [str(x.dtype).removeprefix("torch.") for x in results]
    case = {
        "devices": devices,
        "outputs": [{"path": f"[{k}]", "dtype": kind} for k, kind in enumerate(kinds)],
        "xla": {"compile_s": seconds, "step_ms": min(times[WARM_UP:])},
    }
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", nargs="+", required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES=str(options.devices))
    import torch_xla.runtime

    torch_xla.runtime.use_spmd()
    for name in options.names:
        root = options.folder / name
        root.mkdir(parents=True, exist_ok=True)
        try:
            build_case(name, options.devices, root / str(options.devices))
        except Exception:  # noqa: BLE001 - the reason is for the table
            (root / "error.json").write_text(json.dumps({"crashed": traceback.format_exc()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
