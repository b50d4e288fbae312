"""Cubins of ragged products: no register is spilled."""

from __future__ import annotations

import importlib.util

import pytest

from tests.runtime.gpu.triton.ragged import Ragged, of_depth, of_rows
from tests.runtime.gpu.triton.resources import resources

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)
GROUPS = [512] * 8
CASES = {
    "rows": lambda **more: of_rows(GROUPS, 4096, 1024, 2048, **more),
    "rows, transposed": lambda **more: of_rows(GROUPS, 4096, 1024, 2048, transposed=True, **more),
    "rows of uneven sizes": lambda **more: of_rows(GROUPS, 4100, 1001, 2047, **more),
    "rows of small groups": lambda **more: of_rows([8] * 64, 512, 1024, 2048, **more),
    "depth": lambda **more: of_depth(GROUPS, 4096, 1024, 2048, **more),
}
KINDS = {
    "bf16": {"kinds": ("bf16", "bf16", "bf16")},
    "tf32": {"precision": ""},
    "f32": {},
    "mixed": {"kinds": ("bf16", "f32", "f32"), "precision": ""},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name: str, kind: str) -> None:
    case: Ragged = CASES[name](**KINDS[kind])
    used = resources(case.kernel(), "sm_90")
    print(f"{name} {kind}: {used}")
    assert used.spilled == 0
    assert used.registers * 32 * used.warps <= 64 << 10
    assert used.shared <= 227 << 10
