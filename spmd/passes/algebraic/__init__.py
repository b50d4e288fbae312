"""Identities by family; importing this package registers them all. The one list of families."""

from spmd.passes.algebraic import arithmetic as arithmetic
from spmd.passes.algebraic import broadcast as broadcast
from spmd.passes.algebraic import compare as compare
from spmd.passes.algebraic import concatenate as concatenate
from spmd.passes.algebraic import convert as convert
from spmd.passes.algebraic import copy as copy
from spmd.passes.algebraic import cut_first as cut_first
from spmd.passes.algebraic import disjoint_sum as disjoint_sum
from spmd.passes.algebraic import dot as dot
from spmd.passes.algebraic import logical as logical
from spmd.passes.algebraic import pad as pad
from spmd.passes.algebraic import reduce as reduce
from spmd.passes.algebraic import reshape as reshape
from spmd.passes.algebraic import scatter as scatter
from spmd.passes.algebraic import select as select
from spmd.passes.algebraic import slice as slice  # noqa: A004 - named after its operation
from spmd.passes.algebraic import slice_of_pad as slice_of_pad
from spmd.passes.algebraic import transpose as transpose
