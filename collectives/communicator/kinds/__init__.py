"""The kinds of collectives, each in a file of its own: its definition, and its actions on every transport."""
