"""Checker of buffer assignments: runs thunks on shadow memory, by rules that share no code with the assignment."""
