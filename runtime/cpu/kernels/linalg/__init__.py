"""Cholesky factors, triangular solves and factorizations: calls of LAPACK, and LLVM IR for small systems."""
