"""Fixtures and hooks for all tests: `.hlo` files as tests, and where the shared cases lie."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hlo_fixture import HloFixture
from hypothesis import settings

from launch.cache.cache_folder import VARIABLE, keep_objects
from runtime.cpu.libraries.blas import set_blas_threads
from spmd.hlo import HloModule
from spmd.passes import pipeline
from spmd.passes.interface import HloPass, PassResult
from spmd.verifier import verify
from tests import time_limit
from tests.paths import CASES, TESTS

# How long an example takes says more of what else the machine does.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

#: Shrunk programs of the fuzzer, run by test_regressions.py.
REGRESSIONS = TESTS / "differential" / "regressions"

#: Garbage collections are rare: ten thousand tests leave what each traversal of all objects takes a third of a second
#: for, which was a tenth of the time.
gc.set_threshold(10_000, 10, 20)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    own = CASES in file_path.parents or REGRESSIONS in file_path.parents
    if file_path.suffix == ".hlo" and not own:
        return HloFixture.from_parent(parent, path=file_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rules of the house come first, so that one of pytest-xdist's processes reads all sources, not each of them."""
    items.sort(key=lambda item: item.path.name != "test_house.py")


def pytest_configure(config: pytest.Config) -> None:
    """Machine code is kept for as long as the tests run, in a folder that pytest-xdist's workers inherit.

    A kernel that many tests use is compiled once, by the first of them, and the user's own folder is neither read nor
    written. Whoever has set the variable keeps it: ranks under mpirun are given one folder together.
    """
    if VARIABLE in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="spmd-tests-")
    os.environ[VARIABLE] = folder

    def remove() -> None:
        del os.environ[VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(remove)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> bool | None:
    """One thread watches all tests: pytest-timeout would start one for each."""
    return time_limit.begin(item, settings)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer() -> bool | None:
    return time_limit.end()


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of the copied corpus cases: NAME/{module.hlo, inputs.npz, expected.npz, case.json}."""
    return CASES


@pytest.fixture
def own_objects_alone_are_collected() -> Iterator[None]:
    """Collections traverse what the test has made, not the millions of objects that the process holds: a second each.

    For tests that compile no program, which would count the frozen objects.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _products_take_one_thread() -> None:
    """Several processes run tests beside each other: threads of each that wait for their share of a product take its
    time, up to ten times that of the product.
    """
    set_blas_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _machine_code_is_kept(_programs_are_compiled_afresh: None) -> None:
    """Keep machine code in this process, as in the processes that tests start."""
    keep_objects()


@pytest.fixture(scope="session", autouse=True)
def _programs_are_compiled_afresh() -> Iterator[None]:
    """Switch the cache of programs off, also in processes that tests start.

    A change that a test makes in this process is not part of a program's key.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPMD_PROGRAM_CACHE", "off")
        yield


@pytest.fixture(scope="session", autouse=True)
def _passes_leave_what_verifies() -> Iterator[None]:
    """Verify each module that a pass of a pipeline changes, in every test of this process."""
    apply = pipeline.apply

    def verified(step: HloPass, module: HloModule) -> PassResult:
        result = apply(step, module)
        if result.changed:
            verify(module)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "apply", verified)
        yield
