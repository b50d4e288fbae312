"""The CPU back end: it loads a program's thunks on devices of this process or on one rank, and runs them."""
