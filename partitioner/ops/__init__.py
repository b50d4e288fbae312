"""Partitioning rules of every op. Importing this package fills the registries; the list of files is here."""

from partitioner.ops import annotation as annotation
from partitioner.ops import callback as callback
from partitioner.ops import chosen_reduce as chosen_reduce
from partitioner.ops import collective as collective
from partitioner.ops import control_flow as control_flow
from partitioner.ops import convolution as convolution
from partitioner.ops import custom_call as custom_call
from partitioner.ops import custom_partitioning as custom_partitioning
from partitioner.ops import dot as dot
from partitioner.ops import elementwise as elementwise
from partitioner.ops import feed as feed
from partitioner.ops import gather_scatter as gather_scatter
from partitioner.ops import halo_slices as halo_slices
from partitioner.ops import halo_windows as halo_windows
from partitioner.ops import hint as hint
from partitioner.ops import leaf as leaf
from partitioner.ops import linalg as linalg
from partitioner.ops import merged_topk as merged_topk
from partitioner.ops import mirrored as mirrored
from partitioner.ops import owned_gather as owned_gather
from partitioner.ops import owned_slices as owned_slices
from partitioner.ops import reduce as reduce
from partitioner.ops import reshape as reshape
from partitioner.ops import rng as rng
from partitioner.ops import slicing as slicing
from partitioner.ops import sort as sort
from partitioner.ops import tuple as tuple  # noqa: A004 - a family is named by its opcode, and nothing here uses the built-in
