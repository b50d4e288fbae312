"""Addresses of the library functions that native code calls: BLAS, LAPACK and pocketfft."""
