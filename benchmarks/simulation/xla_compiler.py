"""Compile a per-device module with XLA:GPU for a GPU that is not here.

    PYTHON xla_compiler.py MODULE OUT --spec SPEC --devices N --node N --options JSON [--memory 0.94] [--profile F]

PYTHON has jax with its CUDA plugin. SPEC is the text of a GpuTargetConfigProto, which XLA publishes for many GPUs. OUT
gets the scheduled module. Nothing is tuned by trial, because trials need the GPU. F holds a serialized
ProfiledInstructionsProto, from which XLA's scheduler takes the times of instructions.

Targets of typed custom calls that only the program's own library registers get the handler of another call, so that XLA
finds one. It is never called. This file runs by itself: it imports nothing of this project.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

#: The part of a GPU's memory that XLA plans with if no allocator states its size.
_PLANNED = 0.8
_MEMORY = re.compile(r"(device_memory_size:\s*)(\d+)")
#: A typed custom call, and its target.
_TYPED_CALL = re.compile(r'custom_call_target="([^"]+)"[^\n]*API_VERSION_TYPED_FFI')


def _register(targets):
    """Give each of ``targets`` the handler of some call of cuSOLVER."""
    import jax
    from jaxlib.plugin_support import import_from_plugin

    handlers = import_from_plugin("cuda", "_solver").registrations()
    for target in targets:
        if target not in handlers:
            jax.ffi.register_ffi_target(target, handlers["cusolver_getrf_ffi"], platform="CUDA")


def with_memory(spec, fraction):
    """Return the description ``spec`` with so much memory that XLA plans with ``fraction`` of the GPU's."""
    return _MEMORY.sub(lambda m: m[1] + str(int(int(m[2]) * fraction / _PLANNED)), spec)


def compiled(text, topology, options, profile):
    """Return the text of the module that XLA makes of the module ``text`` for all devices of ``topology``."""
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir

    devices = topology.devices
    settings = xla_client.CompileOptions()
    build = settings.executable_build_options
    settings.num_replicas = build.num_replicas = 1
    settings.num_partitions = build.num_partitions = len(devices)
    assignment = np.arange(len(devices)).reshape(1, -1)
    build.device_assignment = xla_client.DeviceAssignment.create(assignment)
    build.use_spmd_partitioning = False  # the module is that of one device already
    settings.env_option_overrides = list(options.items())
    if profile:
        build.fdo_profile = profile
    proto = xla_client.hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(proto))
        places = xla_client.DeviceList(tuple(devices))
        executable = devices[0].client.compile(module, places, settings)
    return executable.hlo_modules()[0].to_string()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--node", type=int, required=True, help="devices of a node")
    parser.add_argument("--options", type=json.loads, required=True)
    parser.add_argument("--memory", type=float, default=_PLANNED, help="fraction for the program")
    parser.add_argument("--profile", type=Path)
    o = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"  # else the plugin asks for a driver

    from jax.experimental import topologies

    text = o.module.read_text()
    _register(sorted(set(_TYPED_CALL.findall(text))))
    node = min(o.node, o.devices)
    topology = topologies.get_topology_desc(
        platform="cuda",
        target_config=with_memory(o.spec.read_text(), o.memory),
        topology=f"1x{o.devices // node}x{node}",
    )
    profile = o.profile.read_bytes() if o.profile else b""
    o.out.write_text(compiled(text, topology, o.options, profile))


if __name__ == "__main__":
    sys.exit(main())
