"""StableHLO and JAX functions, through jaxlib where it is installed."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import spmd
from spmd.errors import HloParseError, SpmdError, UnsupportedError
from spmd.text.load import parse_bytes
from spmd.text.stablehlo import from_jax, parse_stablehlo

TEXT = """module @m attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> tensor<4x4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
"""


def test_without_jaxlib_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UnsupportedError, match=r"jax extra.*as_text"):
        parse_stablehlo(TEXT)


def test_a_function_that_jax_did_not_make_is_refused() -> None:
    with pytest.raises(SpmdError, match=r"jax\.jit"):
        from_jax(len, 1)  # type: ignore[arg-type]


def test_text_is_converted_with_its_shardings() -> None:
    pytest.importorskip("jaxlib")
    module = parse_bytes(TEXT.encode())
    (parameter,) = module.entry.parameters
    assert str(parameter.sharding) == "{devices=[2,1]<=[2]}"
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert np.array_equal(spmd.evaluate(module, x)[0], x + x)


def test_what_mlir_refuses_is_one_parse_error() -> None:
    pytest.importorskip("jaxlib")
    with pytest.raises(HloParseError, match="jaxlib cannot convert"):
        parse_stablehlo(TEXT.replace("stablehlo.add", "stablehlo.nonsense"))


def test_a_jitted_function_becomes_a_module() -> None:
    jax = pytest.importorskip("jax")
    x = np.ones((3, 3), np.float32)
    module = spmd.from_jax(jax.jit(lambda a: a @ a), x)
    assert np.array_equal(spmd.evaluate(module, x)[0], x @ x)
