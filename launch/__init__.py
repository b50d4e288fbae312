"""Drivers: the compile pipeline, rank bootstrap and the command line; alone in reading argv and the environment."""
