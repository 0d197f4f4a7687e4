"""Malformed arguments of public functions, each with what its one ValueError must say (a regular expression)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import Problem, initial, losses, norms, regularization, tokens
from jaxattn import attention as annotated_attention
from jaxattn import data as annotated_data
from jaxattn import descent as annotated_descent
from jaxattn import heads as annotated_heads
from jaxattn import metrics as annotated_metrics
from jaxattn import svm as annotated_svm
from tests import instances
from tests.instances import T, d, n

# Called with what their annotations forbid.
attention: Any = annotated_attention
data: Any = annotated_data
descent: Any = annotated_descent
heads: Any = annotated_heads
metrics: Any = annotated_metrics
svm: Any = annotated_svm

KEY, W = jax.random.key(0), np.eye(d)
FACTORS = instances.factored()
TOKENS = np.asarray(instances.problem().X)
SIZES = {"n": 3, "T": 4, "d": 5}


def as_it_is(value: Any) -> Any:
    """Return a value that a type checker knows nothing of."""
    return value


def nan_head(x, v):
    return jnp.log(-jnp.vdot(x, x)) + 0 * v.sum()


def steep(x):
    return x.sum()


def steepest(x, v):
    return x * v


def twice(margin):
    return jnp.stack([margin, margin])


def risk(**given: Any) -> Any:
    return losses.risk(W, instances.problem(), **given)


def train(weights: Any = W, **given: Any) -> Any:
    return descent.train(weights, instances.problem(), **{"steps": 10, **given})


def of(**changed: Any) -> Problem:
    return Problem(**{**{name: np.asarray(one) for name, one in instances.problem().arrays.items()}, **changed})


def rows(**changed: Any) -> Any:
    return instances.lane(instances.constraints(2), 0)._replace(**changed)


def batched() -> Any:
    return jax.tree.map(lambda leaf: leaf[None], rows())


def certify(constraints=None, norm: Any = "frobenius", candidate: Any = None, tolerance: Any = annotated_svm.DOUBLE):
    proposed = svm.Candidate(W, np.zeros((n, T - 1)), np.zeros((), int)) if candidate is None else candidate
    return svm.certify(rows() if constraints is None else constraints, norm, proposed, tolerance)


def alpha(chosen: Any) -> Any:
    return svm.token_constraints(instances.problem(), chosen)


def sphere(**changed: Any) -> Problem:
    return data.sphere(KEY, **{**SIZES, **changed})


PROBLEM = "problem: expected a Problem.*found "
ONE_PROBLEM = r"problem: expected one, with X of shape \(n, T, d\), found X of shape \(2,.*use jax.vmap"
CONSTRAINTS = "constraints: expected Constraints, as svm.token_constraints.*found "
ONE_NUMBER_OF_HEAD = r"head: expected one number, found an array of shape \(5,\)"
FACTORS_FOUND = "metrics: expected a matrix, found Factored, whose matrix is .W"
BATCH_FOUND = r"metrics: expected one matrix, found an array of shape \(2, 5, 5\); use jax.vmap for a batch"
SOLVER = "solver: expected a solver such as svm.ActiveSet.*found "
TOLERANCE = r"tolerance: expected a Tolerance such as svm.Tolerance\(gap=1e-6\), found "
STARTS = "optimizer: expected an optax transformation such as .*, found "
# What the tests of a module try themselves is not repeated here.
ARGUMENTS = {
    # Problems and laws.
    "X of texts": (lambda: of(X=[[["a"] * d] * T] * n), "X: expected real numbers, found dtype <U1"),
    "no X": (lambda: of(X=None), "X: expected real numbers, found dtype object"),
    "labels of texts": (lambda: of(Y=["yes", "no", "no"]), "Y: expected real numbers, found dtype <U3"),
    "tokens in half precision": (lambda: of(X=TOKENS.astype("f2")), "X: expected float32 or float64, found float16"),
    "tokens in bfloat16": (
        lambda: of(X=jnp.asarray(TOKENS, jnp.bfloat16)),
        "X: expected float32 or float64, found bfloat16",
    ),
    "tokens in long double": (
        lambda: of(X=TOKENS.astype("g")),
        "X: expected float32 or float64, found (float128|long)",
    ),
    "half precision under jit": (
        lambda: jax.jit(lambda X: of(X=X).X)(TOKENS.astype("f2")),
        "X: expected float32 or float64, found float16",
    ),
    "masked tokens": (
        lambda: of(X=np.ma.masked_array(TOKENS, TOKENS > 9)),
        "X: expected an array without a mask.*found",
    ),
    "a list of masked tokens": (
        lambda: of(X=[np.ma.masked_array(one, one > 9) for one in TOKENS]),
        "X: expected an array without a mask.*found",
    ),
    "masked rows": (
        lambda: svm.att(np.ma.masked_array(TOKENS, TOKENS > 9), TOKENS[:, 0], [0] * n),
        "X: expected an array without a mask.*found",
    ),
    "n = 2.5": (lambda: sphere(n=2.5), "n: expected an integer of at least 1, found 2.5"),
    "n = '3'": (lambda: sphere(n="3"), "n: expected an integer of at least 1, found '3'"),
    "n = True": (lambda: sphere(n=True), "n: expected an integer of at least 1, found True"),
    "a number of dimensions": (lambda: data.Spheres(3, 4, 5), "d: expected different dimensions, .*, found 5"),
    "a spread in words": (
        lambda: data.spread_scores(KEY, **SIZES, spread="wide"),
        "spread: expected a number within 0..1, found 'wide'",
    ),
    "weights of no size": (lambda: initial.free(KEY, 0), "d: expected an integer of at least 1, found 0"),
    "zero weights of a negative size": (
        lambda: initial.free_zero(KEY, -1),
        "d: expected an integer of at least 1, found -1",
    ),
    # Weights.
    "W in words": (lambda: train("W"), r"weights: expected an array or Factored\(K, Q\), found str as W"),
    "W as lists": (lambda: train(W.tolist()), r"weights: expected an array or Factored\(K, Q\), found list as W"),
    "W of texts": (
        lambda: attention.logits(np.full((d, d), "a"), instances.problem()),
        "W: expected dtype float64 .*<U1",
    ),
    "an integer W": (lambda: train(W.astype(int)), "W: expected dtype float64 as the tokens have, found int"),
    "NaN in W": (lambda: train(W * np.nan), "weights: expected finite numbers, found NaN or infinity"),
    "no Q": (lambda: train(attention.Factored(W, None)), r"weights: expected an array .*found NoneType as Q"),
    "a pair of weights": (lambda: train((W, W)), r"weights: expected an array or Factored\(K, Q\), found tuple as W"),
    "weights without a problem": (lambda: descent.train(W, None), PROBLEM + "NoneType"),
    "scores of no problem": (lambda: tokens.scores(as_it_is(W)), PROBLEM),
    # Training.
    "no problem": (
        lambda: descent.train_batch(np.ones((0, d, d)), jax.tree.map(lambda leaf: leaf[:0], instances.problems(2))),
        "problems: expected at least one problem, found an empty batch",
    ),
    "a key of another generator": (
        lambda: train(noise=descent.dropout(0.1), key=jax.random.key(0, impl="rbg")),
        "key: expected one of the generator 'threefry2x32'.*found one of 'rbg'",
    ),
    "a key of another generator that is not safe": (
        lambda: train(noise=descent.minibatches(1), key=jax.random.key(0, impl="unsafe_rbg")),
        "key: expected one of the generator 'threefry2x32'.*found one of 'unsafe_rbg'",
    ),
    "half a step": (lambda: train(steps=2.5), "steps: expected an integer, found 2.5"),
    "steps in words": (lambda: train(steps="10"), "steps: expected an integer, found '10'"),
    "10**15 steps": (lambda: train(steps=10**15), "steps: expected at most 2,147,483,647, found 1,000,000,000,000,000"),
    "a number of snapshots": (lambda: train(snapshots=5), "snapshots: expected a list of whole numbers, found 5"),
    "snapshots in words": (lambda: train(snapshots="ab"), "snapshots: expected a list of whole numbers, found 'ab'"),
    "an optimizer's name": (lambda: train(optimizer="adam"), STARTS + "'adam'"),
    "an optimizer that is not made": (lambda: train(optimizer=descent.gd), STARTS),
    "a scale-free number": (lambda: descent.scale_free(0.1), STARTS + "0.1"),
    "momentum of a name": (lambda: descent.momentum("adam"), STARTS + "'adam'"),
    "a mirror of True": (lambda: descent.mirror(True, 0.1), "p: expected a number above 1, found True"),
    "a mirror with a word": (lambda: descent.mirror("3", 0.1), "p: expected a number above 1, found '3'"),
    "a step in words": (
        lambda: descent.normalized_gd("0.1"),
        "step_size: expected a positive finite number, found '0.1'",
    ),
    "a loss's name": (lambda: train(loss="logistic"), r"loss: expected a function loss\(margin\), found 'logistic'"),
    "a loss of weights": (
        lambda: train(loss=losses.risk),
        r"loss: should be loss\(margin\), found risk\(weights, problem",
    ),
    "a head's name": (lambda: train(head="linear"), r"head: expected a function head\(x, v\), found 'linear'"),
    "a head's class": (lambda: train(head=heads.Quadratic), r"head: expected a function head\(x, v\), found the class"),
    "a head of one argument": (lambda: train(head=steep), r"head: should be head\(x, v\), found steep\(x\)"),
    "a head of NaN": (lambda: train(head=nan_head), r"head: expected finite numbers, found nan of input 0 .*\(3 of 3"),
    "a head of a vector": (lambda: train(head=steepest), ONE_NUMBER_OF_HEAD),
    "the risk of a head of a vector": (lambda: risk(head=steepest), ONE_NUMBER_OF_HEAD),
    "scores of a head of a vector": (lambda: tokens.scores(instances.problem(), steepest), ONE_NUMBER_OF_HEAD),
    "scores of a head's name": (
        lambda: tokens.scores(instances.problem(), as_it_is("linear")),
        r"head: expected a function head\(x, v\), found 'linear'",
    ),
    "a loss of a vector": (lambda: train(loss=twice), r"loss: expected one number, found an array of shape \(2,\)"),
    "the risk of a loss of a vector": (lambda: risk(loss=twice), "loss: expected one number, found an array of shape"),
    "a loss of another precision": (
        lambda: train(loss=lambda margin: jnp.exp(-margin).astype("f4")),
        "loss: expected a number of float64 as the tokens have, found float32",
    ),
    "a loss of NaN": (
        lambda: train(loss=losses.cross_entropy),
        "loss: expected finite numbers, found nan of input . where descent starts",
    ),
    "a penalty in words": (lambda: heads.Quadratic("a"), "penalty: expected a finite number of at least 0, found 'a'"),
    # Posing.
    "rows in half precision": (
        lambda: svm.solve(jax.tree.map(lambda leaf: np.asarray(leaf, "f2"), rows())),
        "constraints: expected float32 or float64, found float16",
    ),
    "rows in the other byte order": (
        lambda: svm.solve(jax.tree.map(lambda leaf: np.asarray(leaf, ">f8"), rows())),
        "constraints: expected float32 or float64, found >f8",
    ),
    "masked differences": (
        lambda: svm.solve(rows(differences=np.ma.masked_array(rows().differences))),
        "constraints: expected differences to be an array, found MaskedArray",
    ),
    "a solver that is not installed": (
        lambda: svm.solve(rows(), solver=svm.Cvxpy("MOSEK")),
        "Cvxpy: expected one of the installed solvers .*'CLARABEL'.*, found 'MOSEK'",
    ),
    "a solver that does not exist": (
        lambda: svm.solve(rows(), solver=svm.Cvxpy("clarabel")),
        "Cvxpy: expected one of the installed solvers .*'CLARABEL'.*, found 'clarabel'",
    ),
    "an alpha of texts": (lambda: alpha(["a", "b", "c"]), "alpha: expected 3 integers, found .* of <U1"),
    "no alpha": (lambda: alpha(None), "alpha: expected 3 integers, found .* of object"),
    "a ragged alpha": (lambda: alpha([[0], [1, 2]]), "alpha: expected an array"),
    "ragged sets": (lambda: svm.set_constraints(instances.problem(), [[True], []]), "selected: expected an array"),
    "lists for a problem": (lambda: svm.token_constraints([[[0.0]]], [0] * n), PROBLEM + "list"),
    "constraints for a problem": (lambda: svm.set_constraints(rows(), [[True] * T] * n), PROBLEM + "Constraints"),
    "a batch of problems": (lambda: svm.token_constraints(instances.problems(2), [0] * n), ONE_PROBLEM),
    "sets of a batch of problems": (lambda: svm.set_constraints(instances.problems(2), [[True] * T] * n), ONE_PROBLEM),
    "attention of a batch of problems": (lambda: attention.probabilities(W, instances.problems(2)), ONE_PROBLEM),
    "risk of a batch of problems": (lambda: losses.risk(np.stack([W, W]), instances.problems(2)), ONE_PROBLEM),
    "scores of a batch of problems": (lambda: tokens.scores(instances.problems(2)), ONE_PROBLEM),
    "training of a batch of problems": (lambda: descent.train(W, instances.problems(2)), ONE_PROBLEM),
    "the gradient of a batch of problems": (lambda: descent.direction(W, instances.problems(2)), ONE_PROBLEM),
    "the path of a batch of problems": (lambda: regularization.path(instances.problems(2), [1.0]), ONE_PROBLEM),
    "logits of texts": (
        lambda: svm.finite_constraints(instances.problem(), np.ones((n, T), bool), [["a"] * T] * n),
        "logits: expected real numbers, found <U1",
    ),
    "no logits": (
        lambda: svm.finite_constraints(instances.problem(), np.ones((n, T), bool), None),
        "logits: expected real numbers, found object",
    ),
    "numbers for a list": (lambda: svm.listed(5, 5), "differences: expected a list of groups.*found int"),
    "nothing for a list": (lambda: svm.listed(None, np.eye(2)), "differences: expected a list of groups.*found None"),
    "a list of numbers": (lambda: svm.listed([1, 2], np.eye(2)), "listed: expected queries"),
    "a problem to make soft": (lambda: svm.soft(instances.problem()), CONSTRAINTS + "Problem"),
    "a price in words": (lambda: svm.soft(rows(), C="a"), "C: expected real numbers, found <U1"),
    # Solving.
    "one problem as a batch": (
        lambda: svm.solve_batch(rows()),
        r"constraints: expected differences \(batch, n, m, d\)",
    ),
    "a problem to solve": (lambda: svm.solve(instances.problem()), CONSTRAINTS + "Problem"),
    "nothing to solve": (lambda: svm.solve(None), CONSTRAINTS + "NoneType"),
    "a list of constraints": (lambda: svm.solve_batch([rows(), rows()]), CONSTRAINTS + "list"),
    "lists in constraints": (
        lambda: svm.solve(rows(differences=rows().differences.tolist())),
        "constraints: expected differences to be an array, found list",
    ),
    "nothing in constraints": (
        lambda: svm.solve(rows(queries=None)),
        "constraints: expected queries to be an array, found NoneType",
    ),
    "norms in a list": (lambda: svm.solve(rows(), norm=["nuclear"]), r"norm: expected one of .*found \['nuclear'\]"),
    "p in words": (lambda: svm.entrywise("a"), "p: expected at least 1, found 'a'"),
    "a norm to square that is none": (lambda: norms.squared("frobenios"), "norm: expected one of.*found 'frobenios'"),
    "no solver": (lambda: svm.solve(rows(), solver=[]), "solver: expected at least one, found an empty list"),
    "a solver's name": (lambda: svm.solve(rows(), solver="cvxpy"), SOLVER + "'cvxpy'"),
    "a solver's name in a list": (lambda: svm.solve(rows(), solver=["cvxpy"]), SOLVER + "'cvxpy'"),
    "a solver's name for a batch": (lambda: svm.solve_batch(batched(), solver="cvxpy"), SOLVER + "'cvxpy'"),
    "a number as a solver": (lambda: svm.solve(rows(), solver=5), SOLVER + "5"),
    "a name for a number of starts": (lambda: svm.LowRank(starts="a"), "LowRank: expected at least one .*found 'a'"),
    "a number as a tolerance": (lambda: svm.solve(rows(), tolerance=1e-6), TOLERANCE + "1e-06"),
    "a tolerance of 0 for a batch": (lambda: svm.solve_batch(batched(), tolerance=0), TOLERANCE + "0"),
    "a chunk of no problem": (lambda: svm.solve_batch(batched(), chunk=0), "chunk: expected at least 1, found 0"),
    "a chunk of half a problem": (
        lambda: svm.solve_batch(batched(), chunk=0.5),
        "chunk: expected an integer, found 0.5",
    ),
    # Solutions and directions.
    "margins of a problem": (lambda: svm.margins(instances.problem(), W), CONSTRAINTS + "Problem"),
    "margins of another shape": (lambda: svm.margins(rows(), np.eye(2)), r"margins: expected W \(.*found \(2, 2\)"),
    "a combination of a matrix": (lambda: svm.combination(W, np.ones(3)), CONSTRAINTS + "ndarray"),
    "a combination with too few multipliers": (
        lambda: svm.combination(rows(), np.ones(3)),
        r"duals: expected \(.*found \(3,\)",
    ),
    "a problem to certify": (lambda: certify(constraints=instances.problem()), CONSTRAINTS + "Problem"),
    "a norm to certify in that is none": (
        lambda: certify(norm="frobenios"),
        "norm: expected one of.*found 'frobenios'",
    ),
    "a matrix to certify": (lambda: certify(candidate=W), "candidate: expected a Candidate, found"),
    "a candidate of another shape": (
        lambda: certify(candidate=svm.Candidate(np.eye(2), np.zeros((n, T - 1)), 0)),
        r"candidate: expected W \(.*found \(2, 2\)",
    ),
    "a number to certify to": (lambda: certify(tolerance=1e-6), TOLERANCE + "1e-06"),
    "a direction in words": (lambda: metrics.correlation("a", W), "metrics: expected a matrix, found 'a'"),
    "the rank of a number": (lambda: metrics.rank(5.0), "metrics: expected a matrix, found 5.0"),
    "a direction of factors": (lambda: metrics.correlation(FACTORS, W), FACTORS_FOUND),
    "the rank of factors": (lambda: metrics.rank(FACTORS), FACTORS_FOUND),
    "the length of factors": (lambda: metrics.norm(FACTORS), "norm: expected an array, found Factored"),
    "a margin ratio of factors": (
        lambda: metrics.margin_ratio(FACTORS, rows(), "frobenius", None),
        FACTORS_FOUND,
    ),
    "margins of factors": (lambda: svm.margins(rows(), FACTORS), r"margins: expected W \(5, 5\), found Factored"),
    "the finite part of factors": (
        lambda: svm.with_finite_part(FACTORS, W, W),
        r"with_finite_part: expected three matrices of one shape, found \['Factored', \(5, 5\)",
    ),
    "a direction of a batch": (lambda: metrics.correlation(np.stack([W, W]), np.stack([W, W])), BATCH_FOUND),
    "a margin ratio of a batch": (
        lambda: metrics.margin_ratio(np.stack([W, W]), rows(), "frobenius", None),
        BATCH_FOUND,
    ),
    "a margin ratio of a problem": (
        lambda: metrics.margin_ratio(W, instances.problem(), "frobenius", None),
        "margin_ratio: expected constraints of svm, found Problem",
    ),
    "a margin ratio without a solution": (
        lambda: metrics.margin_ratio(W, rows(), "frobenius", W),
        "margin_ratio: expected solution of svm, found ndarray",
    ),
    # Paths.
    "radii in words": (
        lambda: regularization.path(instances.problem(), "a"),
        "radii: expected a list of numbers, found 'a'",
    ),
    "the path of a loss's name": (
        lambda: regularization.path(instances.problem(), [1.0], loss=as_it_is("logistic")),
        r"loss: expected a function loss\(margin\), found 'logistic'",
    ),
    "the path of a loss of a vector": (
        lambda: regularization.path(instances.problem(), [1.0], loss=twice),
        "loss: expected one number, found an array of shape",
    ),
    "half a step of a path": (
        lambda: regularization.path(instances.problem(), [1.0], most=as_it_is(2.5)),
        "most: expected an integer, found 2.5",
    ),
    "a ball's name": (
        lambda: regularization.path(instances.problem(), [1.0], ball=as_it_is("nuclear")),
        "ball: expected one such as regularization.FROBENIUS, found 'nuclear'",
    ),
}
