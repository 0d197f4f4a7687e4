"""Measure the SVM solvers: compared with other methods, and as a function of the problem's sizes."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy.optimize import nnls

from benchmarks.timing import median_seconds
from jaxattn import data, svm, tokens
from jaxattn.parallel import batch
from jaxattn.svm import Constraints, Status

WITNESSED = 5
# n, T, d and the number of problems, for the two tables.
FROBENIUS = ((6, 8, 10, 1000), (5, 10, 50, 1000), (10, 5, 20, 1000))
NUCLEAR = ((6, 8, 10, 1000), (10, 5, 20, 1000), (5, 10, 50, 200))
# The other norms, and the size at which they are compared.
NORMS, SIZE = ("spectral", "max", "l_1", "l_1.75", "l_3"), (6, 8, 10, 300)
# Single problems of many rows: n, T and d. The last two are for the other norms, and for the Frobenius norm only.
MANY_ROWS, SOME_ROWS, MOST_ROWS = ((40, 27, 48), (64, 32, 48), (64, 64, 48)), (16, 34, 64), (100, 101, 256)


def posed(n: int, T: int, d: int, count: int, key: int = 1) -> Constraints:
    """Return the Att-SVMs of the optimal tokens of `count` sphere problems."""
    keys = jax.random.split(jax.random.key(key), count)
    problems = jax.jit(jax.vmap(partial(data.sphere, n=n, T=T, d=d)))(keys)
    return batch.over_seeds(svm.token_constraints, problems, batch.over_seeds(tokens.optimal, problems))


def lane(constraints: Constraints, i: int) -> Constraints:
    """Return the i-th problem of a batch."""
    return jax.tree.map(lambda leaf: leaf[i], constraints)


def each(constraints: Constraints, count: int, run: Callable[[Constraints], object]) -> float:
    """Return the median seconds per problem, solved one at a time."""
    seconds = []
    for i in range(count):
        one = lane(constraints, i)
        started = time.perf_counter()
        run(one)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def by_nnls(constraints: Constraints) -> float:
    """Solve the dual of the Frobenius problem as non-negative least squares with SciPy; return the residual."""
    n, m, d = constraints.differences.shape
    A = np.einsum("nmd,ne->nmde", constraints.differences, constraints.queries).reshape(n * m, d * d)
    system = np.vstack([A.T, np.ones(n * m)])
    return nnls(system, np.eye(len(system))[-1], maxiter=100 * n * m)[1]


def table() -> Iterator[dict[str, Any]]:
    """Yield each row of the two tables: the time per problem of this package and of other methods, in milliseconds."""
    for size in FROBENIUS:
        yield _compared("frobenius", size, {"nnls": by_nnls})
    for size in NUCLEAR:
        # The largest nuclear problem takes Clarabel half a minute.
        scs = partial(svm.solve, norm="nuclear", solver=svm.Cvxpy("SCS"))
        yield _compared("nuclear", size, {"SCS": scs}, witnessed=1 if size[2] > 20 else WITNESSED)


def norms() -> Iterator[dict[str, Any]]:
    """Yield the same for the other norms, at one size."""
    for norm in NORMS:
        yield _compared(norm, SIZE, {})


def _compared(
    norm: str,
    size: tuple[int, int, int, int],
    others: Mapping[str, Callable[[Constraints], object]],
    witnessed: int = WITNESSED,
) -> dict[str, Any]:
    """Return the time per problem of this package, of CVXPY's default and of other methods on a few of the problems."""
    n, T, d, count = size
    constraints = posed(n, T, d, count)
    solution = svm.solve_batch(constraints, norm)
    optimal = solution.status == Status.OPTIMAL
    ours = median_seconds(partial(svm.solve_batch, constraints, norm)) / count
    others = {"Clarabel": partial(svm.solve, norm=norm, solver=svm.Cvxpy()), **others}
    return {
        "norm": norm,
        "shape": [n, T, d],
        "problems": count,
        "ms": 1e3 * ours,
        "optimal": int(optimal.sum()),
        "largest gap": float(solution.gap[optimal].max()),
        "others ms": {name: 1e3 * each(constraints, witnessed, run) for name, run in others.items()},
    }


def many_rows() -> Iterator[dict[str, Any]]:
    """Yield the seconds of one problem of many rows in each norm, its status and its gap."""
    for size in MANY_ROWS:
        for norm in ("frobenius", "nuclear"):
            yield _single(norm, *size)
    for norm in ("spectral", "max"):
        yield _single(norm, *SOME_ROWS)
    yield _single("frobenius", *MOST_ROWS)


def _single(norm: str, n: int, T: int, d: int) -> dict[str, Any]:
    constraints = lane(posed(n, T, d, 1), 0)
    # The start is warm; the certificate compiles the nuclear norm within the time measured.
    svm.solve(constraints, "frobenius")
    started = time.perf_counter()
    solution = svm.solve(constraints, norm)
    seconds = time.perf_counter() - started
    status, gap = Status(int(solution.status)).name, float(solution.gap)
    return {"norm": norm, "rows": n * (T - 1), "d": d, "s": seconds, "status": status, "gap": gap}
