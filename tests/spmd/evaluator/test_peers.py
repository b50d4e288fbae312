"""XLA's own partitioned programs in lock step: shards in, shards out, glued to what the whole program gives.

Nothing of this project's partitioner takes part, so these test the collectives and the scheduled form alone.
"""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest

from spmd.evaluator import evaluate_partitions
from spmd.text.parser import parse_module

PEERS = ["kv_decode_dp2tp2", "mlp_dp4tp2", "ring_attention4", "shmap_collectives_2x4"]


def places(case, spec, shape):
    """Index of each device's shard, from a spec like ``P('data', None)`` and the mesh."""
    mesh = case["mesh"]
    entries = [ast.literal_eval(entry) for entry in ast.parse(spec, mode="eval").body.args]
    entries += [None] * (len(shape) - len(entries))
    sizes = dict(zip(mesh["axes"], mesh["shape"], strict=True))
    result = {}
    for position, device in zip(np.ndindex(*mesh["shape"]), mesh["device_ids"], strict=True):
        at = dict(zip(mesh["axes"], position, strict=True))
        index = []
        for size, entry in zip(shape, entries, strict=True):
            names = () if entry is None else (entry,) if isinstance(entry, str) else entry
            shard, count = 0, 1
            for name in names:
                shard, count = shard * sizes[name] + at[name], count * sizes[name]
            index.append(slice(shard * size // count, (shard + 1) * size // count))
        result[device] = tuple(index)
    return result


@pytest.mark.parametrize("name", PEERS)
def test_peer(cases, name):
    folder = cases / name
    case = json.loads((folder / "case.json").read_text())
    devices = range(case["num_partitions"])
    per_device = [[] for _ in devices]
    with np.load(folder / "inputs.npz") as inputs:
        for i, argument in enumerate(case["args"]):
            whole = inputs[f"arg{i}"]
            shards = places(case, argument["spec"], whole.shape)
            for d in devices:
                per_device[d].append(whole[shards[d]])
    got = evaluate_partitions(parse_module((folder / "peer.hlo").read_text()), per_device)
    with np.load(folder / "expected.npz") as expected:
        for i, out in enumerate(case["outputs"]):
            want = expected[f"out{i}"]
            for d, index in places(case, out["spec"], want.shape).items():
                np.testing.assert_allclose(
                    got[d][i],
                    want[index],
                    rtol=out.get("rtol", 0),
                    atol=out.get("atol", 0),
                    err_msg=out["name"],
                )
