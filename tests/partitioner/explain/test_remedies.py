"""Every remedy proposed is applied, and the module is looked at anew by its text alone."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import explain_modules
import numpy as np
import pytest

import spmd
from partitioner.explain.annotate import annotated
from partitioner.explain.explain import explain_module
from spmd.analysis.cost import module_cost
from spmd.errors import ShardingError
from spmd.hlo import HloModule
from spmd.sharding import HloSharding
from spmd.text.sharding.sharding_text import parse_sharding


def of_text(module: HloModule) -> Counter[tuple[str, str]]:
    """Collectives of a program by shape and opcode."""
    lines = re.findall(
        r"= (\S+?)(?:\{[\d,]*\})? (all-[a-z-]+|reduce-scatter|collective-permute)\(", str(module)
    )
    return Counter((opcode, shape) for shape, opcode in lines)


def check_remedies(module: HloModule, devices: int, tries: int) -> int:
    """Apply each proposed remedy; the number of them."""
    before = spmd.partition(module, devices)
    found = [c for c in explain_module(module, devices, max_tried=tries).collectives if c.remedy]
    for collective in found:
        remedy = collective.remedy
        assert remedy is not None
        changed = annotated(module, remedy.instruction, parse_sharding(remedy.sharding))
        after = spmd.partition(changed, devices)
        key = (collective.kind, collective.shape.split("{")[0])
        assert of_text(after)[key] < of_text(before)[key], remedy.text
        assert module_cost(after).wire_bytes < module_cost(before).wire_bytes, remedy.text
        assert module_cost(after).wire_bytes == pytest.approx(remedy.wire_bytes_after)
    return len(found)


@pytest.mark.parametrize("name", ["CONTRACTED", "GATHERED", "TURNED", "DISAGREEING"])
def test_a_remedy_removes_its_collective(name: str) -> None:
    module = spmd.parse(getattr(explain_modules, name))
    assert check_remedies(module, module.num_partitions, tries=32) == 1


def test_the_parameter_is_the_first_to_be_changed() -> None:
    (collective,) = explain_module(spmd.parse(explain_modules.TURNED), 4).collectives
    assert collective.remedy is not None
    assert collective.remedy.text == (
        "annotate x with {devices=[4,1]<=[4]}: 1,536 bytes less to send per device"
    )


def test_a_needless_gather_goes_away_whole() -> None:
    (collective,) = explain_module(spmd.parse(explain_modules.GATHERED), 4).collectives
    assert collective.remedy is not None
    assert collective.remedy.wire_bytes_after == 0


def test_what_would_only_make_devices_hold_more_is_no_remedy() -> None:
    """Replicating w would remove the gather, and every device would hold all of it."""
    (collective,) = explain_module(spmd.parse(explain_modules.CONTESTED), 2).collectives
    assert collective.remedy is None
    assert collective.remedies_tried


def test_a_remedy_keeps_the_meaning() -> None:
    module = spmd.parse(explain_modules.TURNED)
    changed = annotated(module, "y", parse_sharding("{devices=[4,1]<=[4]}"))
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    assert np.array_equal(spmd.evaluate(module, x)[0], spmd.evaluate(changed, x)[0])


def test_annotating_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ShardingError, match="no instruction named nobody"):
        annotated(spmd.parse(explain_modules.TURNED), "nobody", HloSharding.replicated())


def test_a_module_with_a_mesh_gets_the_remedy_in_jax_notation() -> None:
    mesh = """frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2]>}}"""
    text = explain_modules.TURNED.replace("num_partitions=4", f"num_partitions=4, {mesh}")
    (collective,) = explain_module(spmd.parse(text), 4).collectives
    assert collective.remedy is not None
    assert "[P(('data', 'model'), None)]" in collective.remedy.text


#: TURNED on a mesh that counts the devices backwards.
BACKWARDS = """
HloModule backwards, num_partitions=4, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2], device_ids=[3, 2, 1, 0]>}}
ENTRY main {
  x = f32[64,32]{1,0} parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\\"data\\", \\"model\\"}]>"}
  y = f32[64,32]{1,0} tanh(x)
  ROOT result = f32[64,32]{1,0} custom-call(y), custom_call_target="Sharding", frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"data\\", \\"model\\"}, {}]>"}
}
"""


def test_remedies_name_devices_where_a_mesh_permutes_them() -> None:
    module = spmd.parse(BACKWARDS)
    (collective,) = explain_module(module, 4).collectives
    assert collective.sharding_from == "{devices=[1,4]3,2,1,0}"
    assert collective.remedy is not None
    assert collective.remedy.text == (
        "annotate x with {devices=[4,1]3,2,1,0} [P(('data', 'model'), None)]: "
        "1,536 bytes less to send per device"
    )
    assert check_remedies(module, 4, tries=32) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "devices", "tries", "least"),
    [
        ("einsums_2x4", 8, 24, 8),
        ("mlp_dp4tp2", 8, 8, 1),
        ("mlp_fsdp8", 8, 24, 1),
    ],
)
def test_remedies_of_real_programs(
    cases: Path, case: str, devices: int, tries: int, least: int
) -> None:
    """Few tries, since each is a partitioning."""
    module = spmd.load(str(cases / case / "module.hlo"))
    assert check_remedies(module, devices, tries) >= least
