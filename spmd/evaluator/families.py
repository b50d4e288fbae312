"""Imports of the op families, which register themselves. Only the driver needs to import this."""

from __future__ import annotations

from spmd.evaluator import batch_norm as batch_norm
from spmd.evaluator import collective as collective
from spmd.evaluator import control_flow as control_flow
from spmd.evaluator import convolution as convolution
from spmd.evaluator import custom_call as custom_call
from spmd.evaluator import dot as dot
from spmd.evaluator import elementwise as elementwise
from spmd.evaluator import feed as feed
from spmd.evaluator import fused_attention as fused_attention
from spmd.evaluator import gather_scatter as gather_scatter
from spmd.evaluator import lapack as lapack
from spmd.evaluator import lapack_library as lapack_library
from spmd.evaluator import leaf as leaf
from spmd.evaluator import library_calls as library_calls
from spmd.evaluator import linalg as linalg
from spmd.evaluator import reduce as reduce
from spmd.evaluator import reduce_window as reduce_window
from spmd.evaluator import reshape as reshape
from spmd.evaluator import rng as rng
from spmd.evaluator import send_recv as send_recv
from spmd.evaluator import slicing as slicing
from spmd.evaluator import sort as sort
from spmd.evaluator import tuple as tuple  # noqa: A004 - the family of HLO's tuple ops
