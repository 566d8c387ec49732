"""Make ``python -m benchmarks.render`` work."""

import sys

from benchmarks.render.pages import main

if __name__ == "__main__":
    sys.exit(main())
