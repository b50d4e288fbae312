"""The library itself, as far as it goes without a GPU."""

from __future__ import annotations

import re
import sys
import time

import pytest

from collectives.communicator.nccl.api import (
    UNIQUE_ID_BYTES,
    CommConfig,
    NcclComm,
    NcclError,
    NcclLibrary,
    NcclResult,
    load_nccl,
)
from spmd.errors import RunError


@pytest.fixture(scope="module")
def library() -> NcclLibrary:
    try:
        return load_nccl()
    except RunError as error:
        pytest.skip(str(error))


def test_without_the_wheels_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        RunError, match=r'NCCL cannot be loaded: .*pip install "spmd-executor\[gpu\]"'
    ):
        load_nccl()


def test_version(library: NcclLibrary) -> None:
    assert library.version() >= 21800


def test_ids_are_bytes_and_differ(library: NcclLibrary) -> None:
    one, other = library.unique_id(), library.unique_id()
    assert len(one) == len(other) == UNIQUE_ID_BYTES
    assert one != other


def test_results_are_described(library: NcclLibrary) -> None:
    assert library.describe(None, NcclResult.INVALID_USAGE).startswith("invalid usage")


def test_what_fails_says_which_function_and_why(library: NcclLibrary) -> None:
    with pytest.raises(NcclError, match="ncclCommGetAsyncError: invalid argument"):
        library.async_error(NcclComm())


def test_memory_or_why_there_is_none(library: NcclLibrary) -> None:
    try:
        address = library.mem_alloc(64)
    except NcclError as error:
        assert re.match(r"ncclMemAlloc: unhandled cuda error .*driver", str(error))  # noqa: PT017
        return
    assert address
    library.mem_free(address)


def test_a_communicator_of_one_rank_or_why_there_is_none(library: NcclLibrary) -> None:
    config = CommConfig(blocking=False, max_ctas=2)
    try:
        comm = library.init_rank(1, library.unique_id(), 0, config)
    except NcclError as error:
        assert re.match(r"ncclCommInitRankConfig: unhandled cuda error .*driver", str(error))  # noqa: PT017
        return
    while (state := library.async_error(comm)) is NcclResult.IN_PROGRESS:
        time.sleep(0.001)
    assert state is NcclResult.SUCCESS
    library.destroy(comm)
    assert not comm.address
