"""Calls of fused attention, of cuDNN and of Transformer Engine, and the operations of HLO that they stand for.

    call.py                  a call, whichever library it names; the table of the libraries' targets
    cudnn.py                 reads calls of cuDNN, and states their sharding rule
    transformer_engine.py    reads calls of Transformer Engine
    named_dimensions.py      arrays whose dimensions have letters
    masks.py                 whether a query sees a key, as comparisons
    expansion.py             the call as products, exponentials and sums

These calls are not in the table of library calls: they are partitioned as calls, simulations of GPUs keep them, and the
reference evaluator has a function of its own, with which the expansion is compared.
"""

from spmd.library_calls.attention import cudnn, transformer_engine

LIBRARIES = (cudnn, transformer_engine)
