"""`python -m edgespec` is the command line."""

from __future__ import annotations

from edgespec.cli import main

if __name__ == "__main__":
    main(prog_name="edgespec")
