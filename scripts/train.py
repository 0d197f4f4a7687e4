"""Train one setting, or a sweep, over many seeds: `jaxattn train`."""

import sys

from jaxattn.study.command import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
