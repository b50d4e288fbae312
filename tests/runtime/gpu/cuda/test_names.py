"""Every name that the driver asks of CuPy and cuDNN is there. Needs both and CUDA's libraries, and no GPU."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT

pytest.importorskip("cupy", reason="CuPy is not installed: pip install spmd-executor[gpu]")
SOURCES = [
    *sorted((ROOT / "runtime" / "gpu" / "cuda").glob("*.py")),
    ROOT / "collectives" / "communicator" / "nccl" / "cuda_memory.py",
]


def imported(tree: ast.Module) -> dict[str, ModuleType]:
    """The modules of CuPy and cuDNN, by the names under which a source knows them."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                a.name: importlib.import_module(a.name)
                for a in node.names
                if a.name.split(".")[0] in {"cupy", "cudnn"}
            }
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cupy"):
            module = importlib.import_module(node.module or "")
            found |= {alias.name: getattr(module, alias.name) for alias in node.names}
    return found


def chains(tree: ast.Module) -> Iterator[list[str]]:
    for node in ast.walk(tree):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if names and isinstance(node, ast.Name):
            yield [node.id, *reversed(names)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_names(source: Path) -> None:
    tree = ast.parse(source.read_text())
    try:
        modules = imported(tree)
    except ImportError as error:
        pytest.skip(f"a library of CUDA is not installed: {error}")
    for first, *names in chains(tree):
        value: object = modules.get(first)
        for name in names if first in modules else ():
            assert hasattr(value, name), ".".join([first, *names])
            value = getattr(value, name)


def test_functions_of_cublas() -> None:
    from runtime.gpu.cuda.blas_api import load_cublas

    try:
        library = load_cublas()
    except ImportError as error:
        pytest.skip(f"cuBLAS is not installed: {error}")
    assert len(library.cublasGemmStridedBatchedEx.argtypes) == 23
    assert len(library.cublasGemmBatchedEx.argtypes) == 20
    assert len(library.cublasStrsm_v2.argtypes) == 12
    assert len(library.cublasZtrsmBatched.argtypes) == 13
    assert len(library.cublasCgetrfBatched.argtypes) == 7
    assert len(library.cublasDgeqrfBatched.argtypes) == 8


def test_functions_of_cusolver() -> None:
    from runtime.gpu.cuda.solver_api import OPTIONAL, load_cusolver

    try:
        library = load_cusolver()
    except ImportError as error:
        pytest.skip(f"cuSOLVER is not installed: {error}")
    assert len(library.cusolverDnSpotrf.argtypes) == 8
    assert len(library.cusolverDnZungqr.argtypes) == 10
    assert len(library.cusolverDnCheevd.argtypes) == 10
    assert len(library.cusolverDnDgesvd.argtypes) == 16
    assert all(hasattr(library, name) for name in OPTIONAL)


def test_functions_of_cublas_lt() -> None:
    from runtime.gpu.cuda.lt_api import load_cublas_lt

    try:
        library = load_cublas_lt()
    except ImportError as error:
        pytest.skip(f"cuBLAS is not installed: {error}")
    assert len(library.cublasLtMatmul.argtypes) == 16
    assert len(library.cublasLtMatmulAlgoGetHeuristic.argtypes) == 10
