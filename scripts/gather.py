"""Gather the records of a sweep into one dataset: `jaxattn gather`."""

import sys

from jaxattn.study.command import main

if __name__ == "__main__":
    main(["gather", *sys.argv[1:]])
