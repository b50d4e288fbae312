"""Code generation for GPUs: LLVM IR of kernel records, compiled to PTX.

Kernel records and element operations are shared with the CPU back end.
"""
