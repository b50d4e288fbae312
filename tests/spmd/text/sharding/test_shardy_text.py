"""Shardy's attributes as strings."""

from __future__ import annotations

import pytest

from spmd.errors import HloParseError
from spmd.mesh import AxisRef, DimensionSharding, Mesh, TensorSharding
from spmd.text.sharding.shardy_text import (
    format_meshes,
    parse_manual_axes,
    parse_meshes,
    parse_sharding_per_value,
    parse_tensor_sharding,
)


def test_meshes() -> None:
    text = (
        '{mesh = #sdy.mesh<["data"=2, "model"=4]>, m_2 = #sdy.mesh<["x"=2], device_ids=[1, 0]>, '
        "one = #sdy.mesh<[], device_ids=[3]>, empty = #sdy.mesh<[]>}"
    )
    meshes = parse_meshes(text)
    assert list(meshes) == ["mesh", "m_2", "one", "empty"]
    assert meshes["mesh"] == Mesh("mesh", (("data", 2), ("model", 4)))
    assert meshes["mesh"].num_devices == 8
    assert meshes["mesh"].axis_size("model") == 4
    assert meshes["mesh"].axis_size("other") is None
    assert meshes["m_2"].device_ids == (1, 0)
    assert meshes["one"].is_maximal
    assert not meshes["empty"].is_maximal
    assert format_meshes(meshes) == text
    assert parse_meshes("{}") == {}


def test_tensor_sharding() -> None:
    text = (
        '#sdy.sharding<@mesh, [{"x", "y":(1)2}, {?}, {"z", ?}p1, {}p0], '
        'replicated={"a"}, unreduced={"b":(2)2}>'
    )
    sharding = parse_tensor_sharding(text)
    assert sharding == TensorSharding(
        "mesh",
        (
            DimensionSharding((AxisRef("x"), AxisRef("y", (1, 2)))),
            DimensionSharding((), is_closed=False),
            DimensionSharding((AxisRef("z"),), is_closed=False, priority=1),
            DimensionSharding((), priority=0),
        ),
        (AxisRef("a"),),
        (AxisRef("b", (2, 2)),),
    )
    assert f"#sdy.sharding{sharding}" == text


def test_scalar_and_inlined_mesh() -> None:
    assert parse_tensor_sharding("#sdy.sharding<@mesh, []>").dims == ()
    text = '#sdy.sharding<mesh<["x"=2], device_ids=[1, 0]>, [{"x"}]>'
    sharding = parse_tensor_sharding(text)
    assert sharding.mesh == Mesh("", (("x", 2),), (1, 0))
    assert f"#sdy.sharding{sharding}" == text


def test_per_value() -> None:
    shardings = parse_sharding_per_value('#sdy.sharding_per_value<[<@mesh, [{"x"}]>, <@mesh, []>]>')
    assert [len(s.dims) for s in shardings] == [1, 0]
    assert [*map(str, shardings)] == ['<@mesh, [{"x"}]>', "<@mesh, []>"]
    assert parse_sharding_per_value("#sdy.sharding_per_value<[]>") == ()


def test_manual_axes() -> None:
    assert parse_manual_axes('#sdy<manual_axes{"x", "y"}>') == ("x", "y")
    assert parse_manual_axes("#sdy<manual_axes{}>") == ()


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_meshes, '{m = #sdy.mesh<["x"=0]>}', "at least 1"),
        (parse_meshes, '{m = #sdy.mesh<["x"=2, "x"=2]>}', "occurs twice"),
        (parse_meshes, '{m = #sdy.mesh<["x"=2], device_ids=[0, 0]>}', "not a permutation"),
        (parse_meshes, '{m = #sdy.mesh<["x"=2]>, m = #sdy.mesh<[]>}', "given twice"),
        (parse_meshes, '{m = #sdy.mesh<["x"=65536, "y"=65536]>}', "too large"),
        (parse_meshes, "mesh", "expected '{'"),
        (parse_tensor_sharding, "#sdy.sharding<@mesh>", "expected ','"),
        (parse_tensor_sharding, '#sdy.sharding<@mesh, [{?, "x"}]>', "expected '}'"),
        (parse_tensor_sharding, '#sdy.sharding<@mesh, [{"x":(0)2}]>', "pre-size of at least 1"),
        (parse_tensor_sharding, "#sdy.sharding<@mesh, [], odd={}>", "expected replicated"),
        (parse_tensor_sharding, "#sdy.sharding<@mesh, []> x", "expected the end, found 'x'"),
        (parse_manual_axes, "#sdy<other>", "expected 'manual_axes'"),
    ],
)
def test_refused(parse: object, text: str, message: str) -> None:
    assert callable(parse)
    with pytest.raises(HloParseError) as caught:
        parse(text)
    assert message in str(caught.value)
