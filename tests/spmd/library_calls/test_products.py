"""cuBLAS and cuBLASLt calls against NumPy: scales, addend, bias, activations, auxiliary results, 8-bit floats."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.errors import UnsupportedError
from spmd.text.parser import parse_module

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
Y = RNG.standard_normal((3, 5, 2)).astype(np.float32)
ADDEND = RNG.standard_normal((3, 4, 2)).astype(np.float32)
BIAS = RNG.standard_normal(2).astype(np.float32)


def config(**settings: object) -> str:
    numbers = {
        "lhs_contracting_dimensions": ["2"],
        "rhs_contracting_dimensions": ["1"],
        "lhs_batch_dimensions": ["0"],
        "rhs_batch_dimensions": ["0"],
    }
    found = {"alpha_real": 1, "alpha_imag": 0, "beta": 0, "dot_dimension_numbers": numbers}
    return json.dumps({"operation_queue_id": "0", "gemm_backend_config": found | settings})


def call(
    operands: str, results: str, target: str = "__cublas$lt$matmul", **settings: object
) -> str:
    return f"""
ENTRY main {{
  x = f32[3,4,5] parameter(0)
  y = f32[3,5,2] parameter(1)
  c = f32[3,4,2] parameter(2)
  b = f32[2] parameter(3)
  z = ({results}) custom-call({operands}), custom_call_target="{target}", backend_config={config(**settings)}
  ROOT r = f32[3,4,2] get-tuple-element(z), index=0
}}"""


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {"": lambda x: x, "RELU": lambda x: np.maximum(x, 0), "GELU": gelu}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("beta", [0, 0.5])
def test_epilogues(run, activation: str, bias: bool, beta: float) -> None:
    epilogue = "_".join(["BIAS"] * bias + [activation] * bool(activation)) or "DEFAULT"
    operands = ", ".join(["x", "y"] + ["c"] * bool(beta) + ["b"] * bias)
    text = call(operands, "f32[3,4,2], s8[64]", epilogue=epilogue, beta=beta, alpha_real=-2)
    before = -2 * (X @ Y) + beta * ADDEND + (BIAS if bias else 0)
    (found,) = run(text, X, Y, ADDEND, BIAS)
    np.testing.assert_allclose(found, ACTIVATIONS[activation](before), rtol=1e-5, atol=1e-5)


def test_aux_is_what_the_activation_reads(run) -> None:
    text = call("x, y, b", "f32[3,4,2], f32[3,4,2], s8[64]", epilogue="BIAS_GELU_AUX")
    first = text.replace("ROOT r", "r").replace(
        "\n}",
        "\n  a = f32[3,4,2] get-tuple-element(z), index=1\n  ROOT t = (f32[3,4,2], f32[3,4,2]) tuple(r, a)\n}",
    )
    result, aux = run(first, X, Y, ADDEND, BIAS)
    np.testing.assert_allclose(aux, X @ Y + BIAS, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result, gelu(X @ Y + BIAS), rtol=1e-5, atol=1e-5)


def test_gemm_with_a_workspace_that_is_returned() -> None:
    """The tuple stays a result of the program; what its workspace holds is unspecified."""
    text = call("x, y", "f32[3,4,2], s8[16]", "__cublas$gemm").replace("ROOT r", "r")
    text = "HloModule gemm\n" + text.replace("  z = ", "  ROOT z = ")
    executable = compile_module(parse_module(text), 1, CompileOptions(partitioned=True))
    result, workspace = executable.run(X, Y, ADDEND, BIAS)
    np.testing.assert_allclose(result, X @ Y, rtol=1e-5, atol=1e-5)
    assert workspace.shape == (16,)


def test_integers_and_a_float_result(run) -> None:
    x = RNG.integers(-100, 100, (8, 16)).astype(np.int8)
    y = RNG.integers(-100, 100, (16, 4)).astype(np.int8)
    numbers = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    exact = x.astype(np.int32) @ y.astype(np.int32)
    for kind, alpha, want in (("s32", 1, exact), ("f32", 0.5, exact * np.float32(0.5))):
        text = f"""
ENTRY main {{
  x = s8[8,16] parameter(0)
  y = s8[16,4] parameter(1)
  ROOT z = {kind}[8,4] custom-call(x, y), custom_call_target="__cublas$gemm", backend_config={config(dot_dimension_numbers=numbers, alpha_real=alpha)}
}}"""
        np.testing.assert_array_equal(run(text, x, y)[0], want)


def test_8_bit_floats(run) -> None:
    """Scales of both operands, then that of the result, which saturates; the largest magnitude before it."""
    x = (16 * RNG.standard_normal((8, 16))).astype(ml_dtypes.float8_e4m3fn)
    y = (16 * RNG.standard_normal((16, 4))).astype(ml_dtypes.float8_e4m3fn)
    numbers = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    text = f"""
ENTRY main {{
  x = f8e4m3fn[8,16] parameter(0)
  y = f8e4m3fn[16,4] parameter(1)
  xs = f32[] constant(0.5)
  ys = f32[] constant(2)
  zs = f32[] constant(0.75)
  z = (f8e4m3fn[8,4], f32[], s8[32]) custom-call(x, y, xs, ys, zs), custom_call_target="__cublas$lt$matmul$f8", backend_config={config(dot_dimension_numbers=numbers, damax_output=True)}
  r = f8e4m3fn[8,4] get-tuple-element(z), index=0
  m = f32[] get-tuple-element(z), index=1
  ROOT t = (f8e4m3fn[8,4], f32[]) tuple(r, m)
}}"""
    exact = x.astype(np.float32) @ y.astype(np.float32)
    result, largest = run(text, x, y)
    assert np.abs(exact).max() * 0.75 > 448  # something saturates
    want = np.clip(exact * np.float32(0.75), -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(result.astype(np.float32), want.astype(np.float32))
    np.testing.assert_allclose(largest, np.abs(exact).max(), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epilogue": "BIAS_TANH"}, "epilogue='BIAS_TANH'"),
        ({"epilogue": "BIAS"}, "3 operands are expected"),
        ({"alpha_real": "much"}, "alpha_real='much'"),
        ({"dot_dimension_numbers": []}, "dot_dimension_numbers=[]"),
    ],
)
def test_what_is_not_known_is_refused(run, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        run(call("x, y", "f32[3,4,2], s8[64]", **settings), X, Y, ADDEND, BIAS)
    assert message in str(refusal.value)
