"""Random bits (Philox, Threefry): records bound to memory, and their LLVM IR."""
