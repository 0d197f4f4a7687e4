"""Make figures and claims: `jaxattn figures`."""

import sys

from jaxattn.study.command import main

if __name__ == "__main__":
    main(["figures", *sys.argv[1:]])
