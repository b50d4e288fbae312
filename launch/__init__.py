"""Drivers: the compile pipeline, options, rank bootstrap and the command line. The only package that reads argv and the environment."""
