"""Calls of GPU libraries that XLA puts into optimized programs, and of XLA's partitioner, as operations of HLO.

    registry.py            the table from targets to expansions, and what an expansion returns
    settings.py            the backend_config of a call, checked
    products.py            cuBLAS and cuBLASLt: products with scales, addend, activation
    convolutions.py        cuDNN: convolutions and their gradients, with bias and activation
    solvers.py             cuSOLVER: factorizations, as calls of LAPACK
    reflectors.py          cuSOLVER and LAPACK: products with the orthogonal factor of a QR factorization
    sparse.py              products of matrices in compressed rows
    other_calls.py         triangular solve, sort, top-k
    partitioner_calls.py   rotations and slices that XLA's partitioner reads

An expansion expresses a call in operations of HLO, so passes, partitioner, kernels and the reference evaluator need no
knowledge of it. Workspaces, which are results of the calls, have unspecified content.
"""

from spmd.library_calls import (
    convolutions,
    other_calls,
    partitioner_calls,
    products,
    reflectors,
    solvers,
    sparse,
)

FAMILIES = (products, convolutions, solvers, reflectors, sparse, other_calls, partitioner_calls)
