"""Write gpt_dp2tp2/losses.json: the loss of 50 training steps, computed by XLA on one device. Needs the jax extra.

    python tests/cases/make_losses.py

The module's shardings are dropped, donated state is fed back, the batch stays. Outputs 0..72 are the state that inputs
0..72 take, output 73 is the loss.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxlib import _hlo, _jax

import spmd
from spmd.hlo import Opcode
from spmd.hlo.instruction import NO_ANNOTATIONS
from spmd.ops.attrs import CustomCallAttrs

CASE = Path(__file__).parent / "gpt_dp2tp2"
STEPS = 50
STATE = 73


def compiled(text: str) -> tuple[Any, Any]:
    """The program for one CPU device, and the device."""
    device = jax.local_devices(backend="cpu")[0]
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    stablehlo = _jax.mlir.hlo_to_stablehlo(proto)
    options = _jax.CompileOptions()
    executable = device.client.compile_and_load(stablehlo, _jax.DeviceList((device,)), options)
    return executable, device


def whole(module: spmd.HloModule) -> str:
    """The module for one device, which holds everything: no shardings, and nothing that constrains them."""
    for computation in module.computations:
        for instruction in list(computation.instructions):
            instruction.sharding = None
            instruction.annotations = NO_ANNOTATIONS
            if instruction.opcode is Opcode.CUSTOM_CALL:
                assert "Sharding" in instruction.attrs_as(CustomCallAttrs).target
                computation.replace(instruction, instruction.operands[0])
    return str(module)


def main() -> None:
    executable, device = compiled(whole(spmd.load(CASE / "module.hlo")))
    with np.load(CASE / "inputs.npz") as stored:
        arrays = [stored[f"arg{i}"] for i in range(len(stored.files))]
    losses = []
    for _ in range(STEPS):
        results = executable.execute_sharded([jax.device_put(x, device) for x in arrays])
        outputs = [np.asarray(x[0]) for x in results.disassemble_into_single_device_arrays()]
        losses.append(float(outputs[STATE]))
        arrays[:STATE] = outputs[:STATE]
    (CASE / "losses.json").write_text(json.dumps({"losses": losses, "jax": jax.__version__}) + "\n")


if __name__ == "__main__":
    main()
