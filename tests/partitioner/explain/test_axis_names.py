from __future__ import annotations

import pytest

import spmd
from partitioner.annotations.reader import AnnotationReader
from partitioner.explain.axis_names import AxisNames
from partitioner.explain.explain import explain_module
from partitioner.partition.shard_state import ShardState
from spmd.device import ReductionKind
from spmd.shape import ArrayShape, PrimitiveType

MODULE = """
HloModule named, num_partitions=12, frontend_attributes={{xla.sdy.meshes={{{meshes}}}}}
ENTRY main {{
  x = f32[12,12]{{1,0}} parameter(0), sharding={{devices={tiles}}}
  ROOT y = f32[12,12]{{1,0}} custom-call(x), custom_call_target="Sharding", sharding={{replicated}}
}}
"""


def names(meshes: str, tiles: str = "[12,1]<=[12]") -> AxisNames:
    module = spmd.parse(MODULE.format(meshes=meshes, tiles=tiles))
    return AxisNames(AnnotationReader.for_module(module, 12))


def test_mesh_axes_have_their_names() -> None:
    found = names('mesh = #sdy.mesh<["data"=3, "model"=4]>')
    assert found.sizes() == {"data": 3, "model": 4}
    assert found.partition_spec(((0,), ())) == "P('data', None)"
    assert found.partition_spec(((), (0, 1))) == "P(None, ('data', 'model'))"


def test_an_axis_that_a_sharding_cuts_has_numbered_parts_and_no_name_in_jax() -> None:
    found = names(
        'mesh = #sdy.mesh<["data"=3, "model"=4]>', "[6,1,2]<=[12] last_tile_dim_replicate"
    )
    assert found.sizes() == {"data": 3, "model.0": 2, "model.1": 2}
    assert found.partition_spec(((1,), ())) == ""
    assert found.partition_spec(((1, 2), ())) == ""


def test_a_module_without_a_mesh_has_numbers() -> None:
    found = AxisNames(
        AnnotationReader.for_module(
            spmd.parse(
                "HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]} }"
            ),
            2,
        )
    )
    assert found.sizes() == {"axis0[2]": 2}
    assert found.partition_spec(((0,),)) == ""


def test_a_mesh_that_does_not_nest_with_another_is_left_out() -> None:
    both = 'one = #sdy.mesh<["x"=3, "y"=4]>, two = #sdy.mesh<["a"=4, "b"=3]>'
    assert set(names(both).sizes()) == {"x", "y"}


@pytest.mark.parametrize(
    ("meshes", "tiles"),
    [
        ('one = #sdy.mesh<["x"=3, "y"=4]>, two = #sdy.mesh<["a"=4, "b"=3]>', "[12,1]<=[12]"),
        ('m = #sdy.mesh<["x"=12]>', "[12,1]11,10,9,8,7,6,5,4,3,2,1,0"),
        ('m = #sdy.mesh<["x"=12]>', "[3,1,4]0,5,2,3,4,1,6,7,8,11,10,9 last_tile_dim_replicate"),
    ],
)
def test_modules_of_any_mesh_and_device_order_are_explained(meshes: str, tiles: str) -> None:
    explanation = explain_module(spmd.parse(MODULE.format(meshes=meshes, tiles=tiles)), 12)
    assert explanation.collectives
    assert all(c.because for c in explanation.collectives)


def test_arrays_name_the_axes_that_split_them() -> None:
    found = names('mesh = #sdy.mesh<["data"=3, "model"=4]>')
    shape = ArrayShape(PrimitiveType.F32, (12, 8, 5))
    state = ShardState(((0,), (), ()), (1,), ReductionKind.SUM)
    assert found.array(shape, state) == "f32[12@data,8,5]{sum over model}"
    assert found.array(shape, ShardState(((0, 1), (), ()))) == "f32[12@(data,model),8,5]"
