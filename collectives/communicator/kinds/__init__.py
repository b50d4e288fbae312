"""The kinds of collectives, each in a file of its own: its definition, and how every transport carries it out."""
