"""The texts of a record, and their max-margin problems, solved and certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from jaxtyping import Bool

from jaxattn import language, svm
from jaxattn.parallel import batch
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.texts import choices_of

# Price of a unit of slack, as in the paper.
C = 10.0


def read(record: xarray.Dataset) -> tuple[language.Choices, Bool[np.ndarray, " seeds"]]:
    """Return the texts of a record, and which of their weights stayed finite."""
    texts = choices_of({str(name): record[name].values for name in record.data_vars})
    return texts, np.asarray(np.isfinite(record["pairs"].values).all(axis=(1, 2)))


def is_solved(*solutions: svm.Solution) -> Bool[np.ndarray, " seeds"]:
    """Return where all of these solutions are certified."""
    return np.all([np.asarray(solution.status) == svm.Status.OPTIMAL for solution in solutions], axis=0)


class TextSolutions(NamedTuple):
    """The kept texts, whose hard and soft problems are decided, with their Frobenius solutions.

    Attributes:
        kept: which of the attempted texts are kept, (attempted,).
        texts: compact texts.
        hard: of texts without conflicting prefixes; certified infeasible for others.
        soft: of the soft margin at price C.
        sets: of `language.set_constraints`, all words selected that follow a word.
        finite: of `language.finite_constraints`; 0 if there are none.
        counts: attempted, kept, diverged, unsolved.
    """

    kept: np.ndarray
    texts: language.Choices
    hard: svm.Solution
    soft: svm.Solution
    sets: svm.Solution
    finite: svm.Solution
    counts: dict[str, int]

    @property
    def feasible(self) -> np.ndarray:
        """Whether the hard problem of a kept text has a solution."""
        return is_solved(self.hard)

    @property
    def both_parts(self) -> np.ndarray:
        """Whether both parts of the limit of 2308.16898, of the sets and finite, are solved for a kept text."""
        return is_solved(self.sets, self.finite)

    @property
    def mixed(self) -> np.ndarray:
        """Whether a kept text with a conflict has both parts of the limit of 2308.16898, as in large dimensions."""
        return ~self.feasible & self.both_parts


def solutions(record: xarray.Dataset, solver: svm.Solver | None = None) -> TextSolutions:
    """Solve the problems of every text of a `TextTraining`, with the vocabulary as candidates.

    A text is kept if its weights stayed finite, the hard problem is certified solved or infeasible, and the soft one
    solved.

    Raises:
        ValueError: no text is kept.
    """
    texts, finite = read(record)
    texts = language.compact(texts)
    posed = (language.constraints, _soft, of_sets, language.finite_constraints)
    problems = (batch.over_seeds(pose, texts) for pose in posed)
    solved = [svm.solve_batch(problem, svm.frobenius, solver=solver) for problem in problems]
    hard, soft, *_ = solved
    decided = np.isin(hard.status, (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    kept = finite & decided & is_solved(soft)
    counts = exclusions.count(kept, diverged=~finite)
    if not kept.any():
        raise ValueError(f"expected a text of which hard and soft problem are decided, found counts {counts}")
    return TextSolutions(kept, *exclusions.only(kept, (texts, *solved)), counts=counts)


def _soft(choices: language.Choices) -> svm.Constraints:
    return language.soft(choices, C)


def of_sets(choices: language.Choices) -> svm.Constraints:
    """Return the constraints that select all words that follow a word."""
    return language.set_constraints(choices, language.followers(choices) > 0)
