"""Internal: the compilation effort of XLA on a CPU: most programs run for milliseconds, a few for minutes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax


@dataclass(frozen=True)
class Effort:
    """How a program is compiled for a CPU; compilation for other devices is not affected.

    Attributes:
        level: the optimization level, from 0 to 3.
        emitters: whether XLA uses its newer fusion emitters, which take half of the compilation time.
        parts: into how many parts a program is split for parallel compilation: faster on idle cores, but more work.
    """

    level: int = 3
    emitters: bool = True
    parts: int = 32

    def options(self) -> dict[str, int | bool]:
        """Return the options that this version of XLA has, except those in the variable XLA_FLAGS, which override."""
        options = {
            "xla_backend_optimization_level": self.level,
            "xla_cpu_use_fusion_emitters": self.emitters,
            "xla_cpu_parallel_codegen_split_count": self.parts,
        }
        flags = os.environ.get("XLA_FLAGS", "")
        return understood({name: value for name, value in options.items() if name not in flags})

    def flags(self) -> str:
        """Return the same options as XLA_FLAGS has them: an unknown flag there ends a process."""
        return " ".join(f"--{name}={str(value).lower()}" for name, value in self.options().items())


def understood(options: Mapping[str, int | bool]) -> dict[str, int | bool]:
    """Return those of some options that this version of XLA has.

    From version 0.11 on jaxlib has only one kind of fusion emitters, and no option for it.
    """
    return {name: value for name, value in options.items() if _is_understood(name, value)}


@cache
def _is_understood(name: str, value: Any) -> bool:
    try:
        jax.jit(int).lower().compile({name: value})
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


# Measured with jaxlib 0.10.2 on 64 problems of (6, 8, 10) and the nuclear norm, in seconds of one core. By these three
# the solver compiles in 11.0, 5.9 and 1.5 and then takes 0.15, 0.13 and 0.6; the certificate compiles in 4.9, 2.6 and
# 0.9 and takes 0.01. A loop over steps of descent compiles in half of the time by the second, and takes up to a half
# longer.
FULL = Effort()
SOLVING = Effort(level=1, emitters=False, parts=1)
BRIEF = Effort(level=0, emitters=False, parts=1)


def worth(multiply_adds: float) -> Effort:
    """Return the compilation effort of a loop over steps with this total number of multiply-adds.

    Training W and (K, Q) on 64 problems compiles in 3.3 to 5, 1.3 to 3 and 0.5 to 1.5 s on one core with the three
    efforts. A billion multiply-adds take 0.4, 0.45 and 2.5 s for (6, 8, 10), and 0.4, 0.8 and 3 s for (6, 8, 32).

    Example:
        >>> from jaxattn.parallel import effort
        >>> effort.worth(1e8) == effort.BRIEF, effort.worth(1e12) == effort.FULL
        (True, True)
    """
    return BRIEF if multiply_adds < 4e8 else SOLVING if multiply_adds < 4e9 else FULL


def solving(problems: int, order: int, steps: int = 1) -> Effort:
    """Return the compilation effort of a solver, `BRIEF` or `SOLVING`, from its work on this many problems.

    An interior-point method with matrices of 112 rows and columns takes 4 ms per problem, and 17 ms if compiled
    briefly, which saves two seconds. So its work counts as about four times the cube of the order, compared with
    descent.

    Args:
        problems: the number of problems.
        order: the order of the matrices that are factored.
        steps: the number of steps per problem, as a multiple of that of an interior-point method.

    Example:
        >>> effort.solving(32, 100) == effort.BRIEF, effort.solving(1000, 100) == effort.SOLVING
        (True, True)
    """
    return BRIEF if worth(4.0 * problems * steps * order**3) == BRIEF else SOLVING
