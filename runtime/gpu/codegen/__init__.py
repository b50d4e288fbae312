"""LLVM IR for a GPU, and PTX made of it: kernel records and element operations are those of the processor."""
