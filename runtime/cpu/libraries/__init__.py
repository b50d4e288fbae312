"""Addresses of library functions that native code calls: BLAS, LAPACK, pocketfft."""
