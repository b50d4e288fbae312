"""`python -m launch` is the `spmd` command."""

import sys

from launch.cli import main

sys.exit(main())
