"""The MODULE argument of commands: from a file to a program that runs."""
