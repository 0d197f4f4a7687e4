"""Run the command `jaxattn` as `python -m jaxattn.study`."""

from jaxattn.study.command import main

if __name__ == "__main__":
    main()
