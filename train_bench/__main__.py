"""`python -m train_bench`."""

import sys

from train_bench.cli.program import main

sys.exit(main())
