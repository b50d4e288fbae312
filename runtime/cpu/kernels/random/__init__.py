"""Random bits (Philox, Threefry): the records bound to memory, and their LLVM IR."""
