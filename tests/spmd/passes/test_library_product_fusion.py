"""Each product that a library computes in one call becomes a fusion of its own, which has the price of one kernel."""

from __future__ import annotations

import json

import pytest

from collectives.cost.roofline import RooflineEstimator
from spmd.hlo import HloModule, Opcode
from spmd.machine.named import machine_named
from spmd.passes.library_call_expander import LibraryCallExpander
from spmd.passes.library_product_fusion import LibraryProductFusion
from spmd.text.parser import parse_module
from spmd.verifier.verifier import verify

_M, _K, _N = 4099, 1000, 777


def _module(beta: int = 0, epilogue: str = "DEFAULT", tail: str = "") -> HloModule:
    settings = {
        "alpha_real": 1,
        "beta": beta,
        "epilogue": epilogue,
        "dot_dimension_numbers": {
            "lhs_contracting_dimensions": ["1"],
            "rhs_contracting_dimensions": ["0"],
        },
    }
    config = json.dumps({"gemm_backend_config": settings})
    addend = ", z" if beta else ""
    more = f"bf16[{_M},{_N}], " if epilogue.endswith("AUX") else ""
    text = f"""
HloModule step, is_scheduled=true

ENTRY main {{
  x = bf16[{_M},{_K}] parameter(0)
  y = bf16[{_K},{_N}] parameter(1)
  z = bf16[{_M},{_N}] parameter(2)
  c = (bf16[{_M},{_N}], {more}s8[1024]) custom-call(x, y{addend}), custom_call_target="__cublas$lt$matmul", backend_config={config}
  d = bf16[{_M},{_N}] get-tuple-element(c), index=0
  {tail or f"ROOT e = bf16[{_M},{_N}] negate(d)"}
}}
"""
    return parse_module(text)


def _fused(module: HloModule) -> HloModule:
    assert LibraryProductFusion().run(module)
    verify(module)
    LibraryCallExpander().run(module)
    verify(module)
    return module


def _seconds(module: HloModule) -> float:
    machine = machine_named("dgx-h100")
    estimator = RooflineEstimator.of(module, machine)
    (fusion,) = module.entry.with_opcode(Opcode.FUSION)
    return estimator.compute(fusion)


def test_a_call_with_addend_costs_little_more_than_a_product() -> None:
    text = f"""
HloModule step

ENTRY main {{
  x = bf16[{_M},{_K}] parameter(0)
  y = bf16[{_K},{_N}] parameter(1)
  ROOT d = bf16[{_M},{_N}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    plain = parse_module(text)
    alone = RooflineEstimator.of(plain, machine_named("dgx-h100")).compute(plain.entry.root)
    module = _fused(_module())
    assert [x.opcode for x in module.entry.instructions].count(Opcode.FUSION) == 1
    assert not list(module.entry.with_opcode(Opcode.DOT, Opcode.CONVERT, Opcode.CUSTOM_CALL))
    assert _seconds(module) == pytest.approx(alone, rel=0.01)
    assert _seconds(_fused(_module(beta=1))) == pytest.approx(alone, rel=0.03)


def test_results_that_are_read_are_results_of_the_fusion() -> None:
    tail = f"""f = bf16[{_M},{_N}] get-tuple-element(c), index=1
  ROOT e = bf16[{_M},{_N}] add(d, f)"""
    module = _fused(_module(epilogue="GELU_AUX", tail=tail))
    (fusion,) = module.entry.with_opcode(Opcode.FUSION)
    assert fusion.shape.byte_size == 2 * 2 * _M * _N


def test_a_call_whose_tuple_is_read_whole_stays() -> None:
    tail = f"ROOT t = ((bf16[{_M},{_N}], s8[1024]), bf16[{_M},{_N}]) tuple(c, d)"
    assert not LibraryProductFusion().run(_module(tail=tail))


def test_calls_in_fusions_stay_there() -> None:
    module = _module()
    assert LibraryProductFusion().run(module)
    assert not LibraryProductFusion().run(module)
