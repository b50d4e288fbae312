"""`python -m launch` is the `spmd` command."""

from __future__ import annotations

import sys

from launch.rank_environment import world_of_environment


def main() -> int:
    """A rank is tied to its launcher, and watched, before anything that takes time: the imports of the command."""
    world = world_of_environment()
    if world is not None:
        from launch.starting import begin_start

        begin_start(*world)
    from launch.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
