"""`python -m launch` is the `spmd` command."""

from __future__ import annotations

import sys

from launch.rank_environment import tie_to_launcher, world_of_environment


def main() -> int:
    """A rank is tied to its launcher before anything that takes time, such as the imports of the command."""
    if world_of_environment() is not None:
        tie_to_launcher()
    from launch.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
