"""Calls of fused attention, of cuDNN and of Transformer Engine, read into one form.

    call.py                  a call, whichever library it names; the table of the libraries' targets
    cudnn.py                 reads calls of cuDNN, and states their sharding rule
    transformer_engine.py    reads calls of Transformer Engine

These calls are not in the table of library calls: the reference evaluator has a function for them.
"""

from spmd.library_calls.attention import cudnn, transformer_engine

LIBRARIES = (cudnn, transformer_engine)
