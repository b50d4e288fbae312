"""StableHLO and JAX functions, through jaxlib where it is installed."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

import spmd
from spmd.errors import HloParseError, SpmdError, UnsupportedError
from spmd.proto.writer import serialize
from spmd.text.sources.from_jax import from_jax
from spmd.text.sources.load import parse_bytes
from spmd.text.sources.stablehlo import parse_stablehlo, stablehlo_of

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


BYTECODE = b"ML\xefR\x0dStableHLO_v1.15.0\0" + bytes(range(30))
#: A FlatBuffer's root, some fields, and an array of bytes after its length.
ARTIFACT = b"\x10\0\0\0" + bytes(20) + len(BYTECODE).to_bytes(4, "little") + BYTECODE + bytes(12)


@pytest.mark.parametrize(
    ("data", "what"), [(BYTECODE, "StableHLO bytecode"), (ARTIFACT, "a jax.export artifact")]
)
def test_binary_formats_of_jax_are_named_and_handed_to_jaxlib(
    data: bytes, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stablehlo_of(data) == (BYTECODE, what)
    given: list[object] = []
    module = spmd.parse("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }")

    def convert(text: object, **_: object) -> object:
        given.append(text)
        return SimpleNamespace(as_serialized_hlo_module_proto=lambda: serialize(module))

    jaxlib = SimpleNamespace(mlir=SimpleNamespace(mlir_module_to_xla_computation=convert))
    monkeypatch.setattr(importlib, "import_module", lambda _: jaxlib)
    assert parse_bytes(data).name == "m"
    assert given == [BYTECODE]

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UnsupportedError, match=f"m.bin: this is {what}, .*jax extra.*as_text"):
        parse_bytes(data, "m.bin")


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01" + bytes(60),
        b"\x0f\x01" * 20,
        ARTIFACT[:40],  # shorter than it says
        b"\x11\0\0\0" + ARTIFACT[4:],
    ],
)
def test_any_other_binary_is_no_module(data: bytes) -> None:
    assert stablehlo_of(data) is None
    with pytest.raises(HloParseError, match=r"^m.bin: not an HLO module: neither text, HloProto"):
        parse_bytes(data, "m.bin")


def test_a_damaged_proto_says_where() -> None:
    data = serialize(spmd.parse("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }"))
    with pytest.raises(HloParseError, match=r"^(?!.*not an HLO module).*HloModuleProto"):
        parse_bytes(data[:-3], "m.pb")


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
