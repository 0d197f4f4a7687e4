"""The max-margin problems of the texts of a record, solved and certified."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import xarray

from jaxattn import language, svm
from jaxattn.parallel import batch
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.texts import choices_of

# Price of a unit of slack, as in the paper.
C = 10.0


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
        return np.asarray(self.hard.status) == svm.Status.OPTIMAL

    @property
    def both_parts(self) -> np.ndarray:
        """Whether both parts of the limit of 2308.16898, of the sets and finite, are solved for a kept text."""
        of_sets, of_finite = (np.asarray(part.status) == svm.Status.OPTIMAL for part in (self.sets, self.finite))
        return of_sets & of_finite

    @property
    def mixed(self) -> np.ndarray:
        """Whether a kept text with a conflict has both parts of the limit of 2308.16898, as in large dimensions."""
        return ~self.feasible & self.both_parts


def solutions(record: xarray.Dataset, solver: svm.Solver | None = None) -> TextSolutions:
    """Solve the problems of every text whose weights stayed finite.

    A text is kept if the hard problem is certified solved or infeasible, and the soft one solved.

    Args:
        record: of a `TextTraining` with the vocabulary as candidates.
        solver: for all problems; each problem's default if None.

    Raises:
        ValueError: no text is kept.
    """
    finite = np.isfinite(record["pairs"].values).all(axis=(1, 2))
    texts = language.compact(choices_of({str(name): record[name].values for name in record.data_vars}))
    posed = (language.constraints, _soft, _sets, language.finite_constraints)
    problems = (batch.over_seeds(one, texts) for one in posed)
    hard, soft, sets, of_finite = (svm.solve_batch(one, svm.frobenius, solver=solver) for one in problems)
    decided = np.isin(hard.status, (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    solved = decided & (soft.status == svm.Status.OPTIMAL)
    kept = finite & solved
    counts = exclusions.count(kept, diverged=np.logical_not(finite))
    if not kept.any():
        raise ValueError(f"expected a text of which hard and soft problem are decided, found counts {counts}")

    def of_kept(leaves: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[kept], leaves)

    return TextSolutions(kept, of_kept(texts), of_kept(hard), of_kept(soft), of_kept(sets), of_kept(of_finite), counts)


def _soft(choices: language.Choices) -> svm.Constraints:
    return language.soft(choices, C)


def _sets(choices: language.Choices) -> svm.Constraints:
    return language.set_constraints(choices, language.followers(choices) > 0)
