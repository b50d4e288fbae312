"""A compiled program as plain data that every back end reads: thunks, strides, scalar programs. No LLVM, no device."""
