"""Rotations, slices and paddings that XLA's partitioner reads, against NumPy: on one device, and on several."""

from __future__ import annotations

import re

import numpy as np
import pytest

import spmd
from spmd.errors import UnsupportedError
from spmd.hlo.module import Stage

TILED = "{devices=[4]<=[4]}"


def module(call: str, config: str, operands: str = "x", count: int = 0, size: int = 12) -> str:
    """Return a program of one call on f32[12] with ``count`` results of ``size``; 0: no tuple of them."""
    shape, sharding = f"f32[{size}]", TILED
    if count:
        shape = f"({', '.join([shape] * count)})"
        sharding = f"{{{', '.join([TILED] * count)}}}"
    return f"""HloModule m
ENTRY main {{
  x = f32[12] parameter(0), sharding={TILED}
  zero = f32[] constant(-1), sharding={{replicated}}
  ROOT c = {shape} custom-call({operands}), custom_call_target="_SPMDInternalOp_{call}",
    backend_config="{config}", sharding={sharding}
}}"""


X = np.arange(12, dtype=np.float32)
CALLS = {
    "a rotation": (module("RotateRight", "dimension=0,amount=2"), [np.roll(X, 2)]),
    "a rotation by a tile and more": (
        module("RotateRight", "dimension=0,amount=7"),
        [np.roll(X, 7)],
    ),
    "a rotation by nothing": (module("RotateRight", "dimension=0,amount=24"), [X]),
    "rotations": (
        module("MultiRotate", "dimension=0,left_amount=1,right_amount=2,bufferize=0", count=4),
        [np.roll(X, k) for k in (-1, 0, 1, 2)],
    ),
    "slices": (
        module(
            "MultiSlice",
            "dimension=0,amount=2,start_indices=[1],limit_indices=[10],strides=[1],bufferize=1",
            count=3,
            size=9,
        ),
        [X[1:10], X[2:11], X[3:12]],
    ),
    "paddings": (
        module("MultiPad", "dimension=0,amt=2,bufferize=0", "x, zero", count=3, size=13),
        [
            np.concatenate([[-1, -1], X])[:13],
            np.concatenate([[-1], X]),
            np.concatenate([X, [-1]]),
        ],
    ),
    "what is wrapped around": (
        module("Wrap", "dimension=0,left_amount=1,right_amount=3", size=16),
        [np.concatenate([X[-1:], X, X[:3]])],
    ),
}


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_xlas_partitioner(name: str, devices: int) -> None:
    text, wanted = CALLS[name]
    program = spmd.parse(text if devices > 1 else re.sub(", sharding=.*", "", text))
    for outputs in (
        spmd.evaluate(program, X),
        spmd.compile(program, devices=devices).run(X),
    ):
        for found, want in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(found, want)


def test_a_rotation_of_columns_moves_no_rows() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    program = spmd.parse(
        """HloModule m
ENTRY main {
  x = f32[4,6] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT c = f32[4,6] custom-call(x), custom_call_target="_SPMDInternalOp_RotateRight",
    backend_config="dimension=1,amount=1", sharding={devices=[2,1]<=[2]}
}"""
    )
    executable = spmd.compile(program, devices=2)
    np.testing.assert_array_equal(executable.run(x)[0], np.roll(x, 1, 1))
    assert "collective-permute" not in str(executable.module)


def test_readers_of_one_slice_keep_the_sharding_that_the_call_states() -> None:
    text, wanted = CALLS["slices"]
    text = text.replace("ROOT c", "c").replace(
        "\n}",
        "\n  s = f32[9] get-tuple-element(c), index=1\n  ROOT n = f32[9] negate(s)\n}",
    )
    executable = spmd.compile(spmd.parse(text), devices=4)
    np.testing.assert_array_equal(executable.run(X)[0], -wanted[1])
    assert "f32[3]" in str(executable.module.entry.root.shape)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (module("RotateRight", "dimension=0"), "amount"),
        (module("RotateRight", "dimension=1,amount=1"), "dimension"),
        (module("RotateRight", "dimension=0,amount=-1"), "amount"),
        (module("RotateRight", "dimension=zero,amount=1"), "what begins with"),
        (module("MultiRotate", "dimension=0,left_amount=1,right_amount=1", count=2), "3 results"),
        (
            module(
                "MultiSlice",
                "dimension=0,amount=4,start_indices=[1],limit_indices=[10],strides=[1]",
                count=5,
                size=9,
            ),
            "amount",
        ),
        (module("Wrap", "dimension=0,left_amount=1,right_amount=1", size=20), r"f32\[14\]"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(text: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        spmd.evaluate(spmd.parse(text), X)


def test_a_program_with_such_a_call_is_still_to_be_partitioned() -> None:
    """Even where it holds a collective, as one device's program would."""
    text = """HloModule m
ENTRY main {
  x = f32[12] parameter(0)
  y = f32[12] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}
  ROOT c = f32[12] custom-call(y), custom_call_target="_SPMDInternalOp_RotateRight", backend_config="dimension=0,amount=1"
}"""
    assert spmd.parse(text).stage is Stage.LOGICAL
