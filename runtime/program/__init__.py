"""Compiled programs as plain data that every back end reads: thunks, kernel records, strides, scalar programs.

Nothing here depends on LLVM or on a device.
"""
