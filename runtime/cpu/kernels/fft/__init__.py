"""Fourier transforms: the records bound to memory, calls of pocketfft, and LLVM IR for small sizes."""
