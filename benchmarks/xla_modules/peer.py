"""XLA CPU as a worker: compiles and runs modules for one device. Needs jax.

A request names the module's text, its inputs (arg0, arg1, ... in .npz) and where the outputs (out0, ...) go.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxlib import _hlo, _jax

from benchmarks.xla_modules.worker import serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with open(request["module"]) as file:  # noqa: PTH123
        module = _hlo.hlo_module_from_text(file.read())
    device = jax.local_devices(backend="cpu")[0]
    stablehlo = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    executable = device.client.compile_and_load(
        stablehlo, _jax.DeviceList((device,)), _jax.CompileOptions()
    )
    with np.load(request["inputs"]) as stored:
        arrays = [
            stored[f"arg{i}"].view(np.dtype(kind)) if kind else stored[f"arg{i}"]
            for i, kind in enumerate(request["types"])
        ]
    results = executable.execute_sharded([jax.device_put(x, device) for x in arrays])
    outputs = [np.asarray(x[0]) for x in results.disassemble_into_single_device_arrays()]
    stored = {f"out{i}": x if x.dtype.isbuiltin == 1 else bits(x) for i, x in enumerate(outputs)}
    np.savez(request["outputs"], **stored)
    return {"outputs": len(outputs)}


def bits(array: Any) -> Any:
    """Return an array of a type that NumPy lacks as unsigned integers."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


if __name__ == "__main__":
    import ml_dtypes  # noqa: F401 - so that NumPy knows the names of its types

    jax.config.update("jax_enable_x64", True)
    serve(answer)
