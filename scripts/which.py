"""Find which max-margin problem a variant obeys: `jaxattn which`."""

import sys

from jaxattn.study.command import main

if __name__ == "__main__":
    main(["which", *sys.argv[1:]])
