"""Internal: how long XLA may compile a program for a CPU; most programs run for milliseconds, a few for minutes."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How a program is compiled for a CPU; other devices compile as ever.

    Attributes:
        level: of optimization, from 0 to 3.
        emitters: whether XLA fuses operations by its newer emitters, which take half of the time of compilation.
        parts: in how many a program is compiled side by side, which takes less time on idle cores, and more work.
    """

    level: int = 3
    emitters: bool = True
    parts: int = 32

    def options(self) -> dict[str, int | bool]:
        """Return the options of XLA, without those that the variable XLA_FLAGS names: these stay as they are there."""
        options = {
            "xla_backend_optimization_level": self.level,
            "xla_cpu_use_fusion_emitters": self.emitters,
            "xla_cpu_parallel_codegen_split_count": self.parts,
        }
        flags = os.environ.get("XLA_FLAGS", "")
        return {name: value for name, value in options.items() if name not in flags}


# Measured with jaxlib 0.10.2 on 64 problems of (6, 8, 10) and the nuclear norm, in seconds of one core. By these three
# the solver compiles in 11.0, 5.9 and 1.5 and then takes 0.15, 0.13 and 0.6; the certificate compiles in 4.9, 2.6 and
# 0.9 and takes 0.01. A loop over steps of descent compiles in half of the time by the second, and takes up to a half
# longer.
FULL = Effort()
SOLVING = Effort(level=1, emitters=False, parts=1)
BRIEF = Effort(level=0, emitters=False, parts=1)


def worth(multiply_adds: float) -> Effort:
    """Return how long to compile a loop over steps that takes so many multiply-adds in all.

    Descent on W and on (K, Q) of 64 problems, in seconds of one core: by the three it compiles in 3.3 to 5, 1.3 to 3
    and 0.5 to 1.5. A thousand million multiply-adds of (6, 8, 10) take 0.4, 0.45 and 2.5, of (6, 8, 32) 0.4, 0.8 and 3.

    Example:
        >>> from jaxattn.parallel import effort
        >>> effort.worth(1e8) == effort.BRIEF, effort.worth(1e12) == effort.FULL
        (True, True)
    """
    return BRIEF if multiply_adds < 4e8 else SOLVING if multiply_adds < 4e9 else FULL


def solving(problems: int, order: int, steps: int = 1) -> Effort:
    """Return how long to compile a solver by what it takes for so many problems: briefly, or as a solver.

    An interior-point method in matrices of 112 rows and columns takes 4 ms a problem, and 17 ms if it is compiled
    briefly, which saves two seconds; so it takes about four times the cube of the order, compared with descent.

    Args:
        problems: how many are solved.
        order: of the matrices that are factored.
        steps: how many times as many as those of such a method are made for one problem.

    Example:
        >>> effort.solving(32, 100) == effort.BRIEF, effort.solving(1000, 100) == effort.SOLVING
        (True, True)
    """
    return BRIEF if worth(4.0 * problems * steps * order**3) == BRIEF else SOLVING
