"""`python -m train_bench`."""

import sys

from train_bench.cli import main

sys.exit(main())
