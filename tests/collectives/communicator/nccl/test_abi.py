"""Arguments as a C library takes them that is compiled with NCCL's own header: their order, their types, the structures."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collectives.communicator.actions.device_actions import NcclOperation, NcclType
from collectives.communicator.nccl.api import CommConfig, NcclComm, NcclLibrary, NcclResult

#: Each function says what it was given.
SOURCE = r"""
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include "nccl.h"
static char said[4096];
static struct { int x; } made;
const char* recorded(void) { return said; }
static ncclResult_t say(const char* form, ...) {
  va_list list; va_start(list, form); vsnprintf(said, sizeof said, form, list); va_end(list);
  return ncclSuccess;
}
#define A(p) (unsigned long)(p)
ncclResult_t ncclGetVersion(int* version) { *version = NCCL_VERSION_CODE; return ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { for (int i = 0; i < 128; i++) id->internal[i] = (char)i; return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t result) { return result == ncclSystemError ? "system" : "other"; }
const char* ncclGetLastError(ncclComm_t comm) { return comm ? "of a communicator" : ""; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int n, ncclUniqueId id, int rank, ncclConfig_t* c) {
  *comm = (ncclComm_t)0x1234;
  return say("init n=%d id=%d,%d rank=%d blocking=%d cga=%d min=%d max=%d net=%lx share=%d size=%d magic=%x version=%d",
             n, id.internal[1], id.internal[127], rank, c->blocking, c->cgaClusterSize == NCCL_CONFIG_UNDEF_INT,
             c->minCTAs == NCCL_CONFIG_UNDEF_INT, c->maxCTAs, A(c->netName), c->splitShare == NCCL_CONFIG_UNDEF_INT,
             (int)(c->size == offsetof(ncclConfig_t, trafficClass) || c->size == offsetof(ncclConfig_t, trafficClass) + 4),
             c->magic, c->version);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* c) {
  *made = (ncclComm_t)0x5678;
  return say("split comm=%lx color=%d key=%d blocking=%d", A(comm), color, key, c->blocking);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* e) { *e = ncclInProgress; return say("async comm=%lx", A(comm)); }
ncclResult_t ncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t o, ncclComm_t c, cudaStream_t q)
{ return say("all-reduce %lx %lx %lu %d %d %lx %lx", A(s), A(r), n, t == ncclBfloat16, o == ncclMax, A(c), A(q)); }
ncclResult_t ncclReduceScatter(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t o, ncclComm_t c, cudaStream_t q)
{ return say("reduce-scatter %lx %lx %lu %d %d %lx %lx", A(s), A(r), n, t == ncclFloat8e5m2, o == ncclMin, A(c), A(q)); }
ncclResult_t ncclAllGather(const void* s, void* r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t q)
{ return say("all-gather %lx %lx %lu %d %lx %lx", A(s), A(r), n, t == ncclUint8, A(c), A(q)); }
ncclResult_t ncclBroadcast(const void* s, void* r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q)
{ return say("broadcast %lx %lx %lu %d root=%d %lx %lx", A(s), A(r), n, t == ncclUint8, root, A(c), A(q)); }
ncclResult_t ncclSend(const void* s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t q)
{ return say("send %lx %lu %d peer=%d %lx %lx", A(s), n, t == ncclUint8, peer, A(c), A(q)); }
ncclResult_t ncclRecv(void* r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t q)
{ return say("recv %lx %lu %d peer=%d %lx %lx", A(r), n, t == ncclUint8, peer, A(c), A(q)); }
ncclResult_t ncclGroupStart(void) { return say("group start"); }
ncclResult_t ncclGroupEnd(void) { return say("group end"); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return say("abort %lx", A(comm)); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return say("destroy %lx", A(comm)); }
ncclResult_t ncclMemAlloc(void** p, size_t n) { *p = (void*)0x7f0012345678; return say("allocate %lu", n); }
ncclResult_t ncclMemFree(void* p) { return say("free %lx", A(p)); }
ncclResult_t ncclCommRegister(const ncclComm_t c, void* p, size_t n, void** h)
{ *h = (void*)0x7f0012345678; return say("register %lx %lx %lu", A(c), A(p), n); }
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* h) { return say("deregister %lx %lx", A(c), A(h)); }
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void* p, size_t n, ncclWindow_t* w, int flags)
{ *w = (ncclWindow_t)0x7f0012345678; return say("window %lx %lx %lu %d", A(c), A(p), n, flags == NCCL_WIN_COLL_SYMMETRIC); }
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t w) { return say("no window %lx %lx", A(c), A(w)); }
"""
#: A pointer beyond 32 bits, and more elements than fit in them.
FAR, MANY = 0x7F00_1234_5678, 5_000_000_000


def header() -> Path | None:
    found = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
    places = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
    return next((p / "include" for p in places if (p / "include" / "nccl.h").exists()), None)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    include, compiler = header(), shutil.which("cc")
    if include is None or compiler is None:
        pytest.skip("needs NCCL's header (the gpu extra) and a C compiler")
    folder = tmp_path_factory.mktemp("nccl")
    (folder / "cuda_runtime.h").write_text(
        "#include <stddef.h>\ntypedef struct CUstream_st* cudaStream_t;\ntypedef struct CUevent_st* cudaEvent_t;\n"
    )
    (folder / "cuda_fp16.h").write_text("")
    (folder / "nccl_says.c").write_text(SOURCE)
    built = folder / "libnccl_says.so"
    line = [
        compiler,
        "-shared",
        "-fPIC",
        "-w",
        f"-I{folder}",
        f"-I{include}",
        "-o",
        str(built),
        str(folder / "nccl_says.c"),
    ]
    subprocess.run(line, check=True)
    return ctypes.CDLL(str(built))


@pytest.fixture
def api(compiled: ctypes.CDLL) -> NcclLibrary:
    return NcclLibrary(compiled)


@pytest.fixture
def said(compiled: ctypes.CDLL) -> Callable[[], str]:
    compiled.recorded.restype = ctypes.c_char_p
    return lambda: compiled.recorded().decode()


def test_a_communicator_is_begun(api: NcclLibrary, said: Callable[[], str]) -> None:
    unique = api.unique_id()
    assert unique == bytes(range(128))
    comm = api.init_rank(8, unique, 5, CommConfig(blocking=False, max_ctas=4))
    assert comm.address == 0x1234
    assert said() == (
        "init n=8 id=1,127 rank=5 blocking=0 cga=1 min=1 max=4 net=0 share=1 size=1 magic=cafebeef version=21800"
    )


def test_a_communicator_is_split(api: NcclLibrary, said: Callable[[], str]) -> None:
    parent = NcclComm()
    parent.cell.value = FAR
    comm = api.split(parent, -1, 3, CommConfig())
    assert comm.address == 0x5678
    assert said() == f"split comm={FAR:x} color=-1 key=3 blocking=1"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a, c: a.all_reduce(c, FAR, FAR + 1, MANY, NcclType.BFLOAT16, NcclOperation.MAX, 7), "all-reduce {0:x} {1:x} {2} 1 1 9 7"),
        (lambda a, c: a.reduce_scatter(c, FAR, FAR + 1, MANY, NcclType.FLOAT8E5M2, NcclOperation.MIN, 7), "reduce-scatter {0:x} {1:x} {2} 1 1 9 7"),
        (lambda a, c: a.all_gather(c, FAR, FAR + 1, MANY, NcclType.UINT8, 7), "all-gather {0:x} {1:x} {2} 1 9 7"),
        (lambda a, c: a.broadcast(c, FAR, FAR + 1, MANY, NcclType.UINT8, 2, 7), "broadcast {0:x} {1:x} {2} 1 root=2 9 7"),
        (lambda a, c: a.send(c, FAR, MANY, NcclType.UINT8, 3, 7), "send {0:x} {2} 1 peer=3 9 7"),
        (lambda a, c: a.receive(c, FAR, MANY, NcclType.UINT8, 3, 7), "recv {0:x} {2} 1 peer=3 9 7"),
        (lambda a, c: a.group_start(), "group start"),
        (lambda a, c: a.group_end(), "group end"),
        (lambda a, c: a.abort(c), "abort 9"),
        (lambda a, c: a.destroy(c), "destroy 9"),
        (lambda a, c: a.mem_free(FAR), "free {0:x}"),
        (lambda a, c: a.deregister(c, FAR), "deregister 9 {0:x}"),
        (lambda a, c: a.deregister_window(c, FAR), "no window 9 {0:x}"),
    ],
)  # fmt: skip
def test_arguments(api: NcclLibrary, said: Callable[[], str], call, text) -> None:  # type: ignore[no-untyped-def]
    comm = NcclComm()
    comm.cell.value = 9
    call(api, comm)
    assert said() == text.format(FAR, FAR + 1, MANY)


def test_memory_is_allocated_and_registered(api: NcclLibrary, said: Callable[[], str]) -> None:
    comm = NcclComm()
    comm.cell.value = 9
    assert api.mem_alloc(MANY) == FAR
    assert said() == f"allocate {MANY}"
    assert api.register(comm, FAR, MANY) == FAR
    assert said() == f"register 9 {FAR:x} {MANY}"
    assert api.register_window(comm, FAR, MANY) == FAR
    assert said() == f"window 9 {FAR:x} {MANY} 1"


def test_what_is_found_later(api: NcclLibrary) -> None:
    comm = NcclComm()
    comm.cell.value = 9
    assert api.async_error(comm) is NcclResult.IN_PROGRESS
    assert api.describe(comm, NcclResult.SYSTEM_ERROR) == "system (of a communicator)"
    assert api.describe(None, NcclResult.SYSTEM_ERROR) == "system"
