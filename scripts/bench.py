"""Measure the numbers that the README quotes: `python scripts/bench.py [part ...]`; default: all parts."""

import sys
from pathlib import Path

from jaxattn.study.command import guarded
from jaxattn.study.tuning import tune

# The benchmarks are beside this folder, and are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from benchmarks.all import main

    tune()
    guarded(lambda: main(sys.argv[1:]))
