"""Malformed arguments of public functions, each with what its one ValueError must say (a regular expression)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import Problem, batch, initial, losses, regularization, tokens
from jaxattn import attention as annotated_attention
from jaxattn import data as annotated_data
from jaxattn import descent as annotated_descent
from jaxattn import heads as annotated_heads
from jaxattn import metrics as annotated_metrics
from jaxattn import svm as annotated_svm
from jaxattn.study import claims as annotated_claims
from tests import instances
from tests.instances import T, d, n

# Called with what their annotations forbid.
attention: Any = annotated_attention
claims: Any = annotated_claims
data: Any = annotated_data
descent: Any = annotated_descent
heads: Any = annotated_heads
metrics: Any = annotated_metrics
svm: Any = annotated_svm

KEY, W = jax.random.key(0), np.eye(d)
SIZES = {"n": 3, "T": 4, "d": 5}
TEXT = {"m": 3, "n": 4, "d": 5, "V": 5, "entropy": 0.1}


def as_it_is(value: Any) -> Any:
    """Return a value that a type checker knows nothing of."""
    return value


def nan_head(x, v):
    return jnp.log(-jnp.vdot(x, x)) + 0 * v.sum()


def steep(x):
    return x.sum()


def train(weights: Any = W, **given: Any) -> Any:
    return descent.train(weights, instances.problem(), **{"steps": 10, **given})


def of(**changed: Any) -> Problem:
    return Problem(**{**{name: np.asarray(one) for name, one in instances.problem().arrays.items()}, **changed})


def rows(**changed: Any) -> Any:
    return instances.lane(instances.constraints(2), 0)._replace(**changed)


def alpha(chosen: Any) -> Any:
    return svm.token_constraints(instances.problem(), chosen)


def sphere(**changed: Any) -> Problem:
    return data.sphere(KEY, **{**SIZES, **changed})


def text(**changed: Any) -> Any:
    return data.language(KEY, **{**TEXT, **changed})


PROBLEM = "problem: expected a Problem.*found "
ARGUMENTS = {
    # Problems.
    "X of two axes": (lambda: of(X=np.ones((T, d))), r"X: expected shape \(..., n, T, d\), found \(4, 5\)"),
    "X of texts": (lambda: of(X=[[["a"] * d] * T] * n), "X: expected real numbers, found dtype <U1"),
    "no X": (lambda: of(X=None), "X: expected real numbers, found dtype object"),
    "ragged X": (lambda: of(X=[[[1.0], [1.0, 2.0]]]), "X: expected an array of numbers, found "),
    "one token": (lambda: of(X=np.ones((n, 1, d))), "X: expected at least T = 2 tokens to choose between, found T = 1"),
    "no inputs": (
        lambda: of(X=np.ones((0, T, d)), Z=np.ones((0, d)), Y=np.ones(0)),
        "X: expected n, T and d of at least 1, found .*'n': 0",
    ),
    "NaN in X": (
        lambda: of(X=np.full((n, T, d), np.nan)),
        r"X: expected finite numbers, found nan at index \(0, 0, 0\)",
    ),
    "infinity in Z": (
        lambda: of(Z=np.full((n, d), np.inf)),
        r"Z: expected finite numbers, found inf at index \(0, 0\)",
    ),
    "complex X": (lambda: of(X=np.ones((n, T, d)) + 0j), "X: expected real numbers, found dtype complex128"),
    "single X": (
        lambda: of(X=np.ones((n, T, d), np.float32)),
        "Problem: expected one precision, found .*'X': 'float32'",
    ),
    "too few queries": (lambda: of(Z=np.ones((n - 1, d))), r"Z: expected shape \(3, 5\).*found \(2, 5\)"),
    "a label 0": (lambda: of(Y=[1, -1, 0]), r"Y: expected labels \+1 or -1, found 0.0 \(and 0 more\)"),
    "labels of texts": (lambda: of(Y=["yes", "no", "no"]), "Y: expected real numbers, found dtype <U3"),
    "a short v": (lambda: of(v=np.ones(d - 1)), r"v: expected shape \(5,\) or \(5, width\).*found \(4,\)"),
    "present of numbers": (lambda: of(present=np.ones((n, T))), r"present: expected truth values of shape \(3, 4\)"),
    "nothing present": (
        lambda: of(present=np.zeros((n, T), bool)),
        "present: expected at least one token of every input",
    ),
    "one token present": (
        lambda: of(present=np.eye(T, dtype=bool)[:n]),
        "present: expected an input with at least two tokens to choose between, found none",
    ),
    # Laws.
    "n = 0": (lambda: sphere(n=0), "n: expected an integer of at least 1, found 0"),
    "T = 1": (lambda: sphere(T=1), "T: expected an integer of at least 2, found 1"),
    "d = -5": (lambda: sphere(d=-5), "d: expected an integer of at least 1, found -5"),
    "n = 2.5": (lambda: sphere(n=2.5), "n: expected an integer of at least 1, found 2.5"),
    "n = '3'": (lambda: sphere(n="3"), "n: expected an integer of at least 1, found '3'"),
    "n = True": (lambda: sphere(n=True), "n: expected an integer of at least 1, found True"),
    "T > d": (lambda: data.orthonormal(KEY, 3, 6, 5), "T: expected at most d = 5 orthonormal tokens, found 6"),
    "no dimensions": (lambda: data.Spheres(3, 4, []), r"d: expected different dimensions, at least one, found \[\]"),
    "a number of dimensions": (lambda: data.Spheres(3, 4, 5), "d: expected different dimensions, .*, found 5"),
    "a spread in words": (
        lambda: data.spread_scores(KEY, **SIZES, spread="wide"),
        "spread: expected a number within 0..1, found 'wide'",
    ),
    "one word": (lambda: text(V=1), "V: expected at least 2, found 1"),
    "entropy above log V": (lambda: text(entropy=9.0), r"entropy: expected 0..log V = 1.609 nats, found 9.0"),
    "a text of one word": (lambda: text(n=1), r"m, n: expected m >= 1 and n > order = 1, found 3 and 1"),
    "no width": (lambda: initial.factored(KEY, 5, m=0), "m: expected a width of at least 1, found 0"),
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
    "a low W": (lambda: train(W[:4]), r"W: expected shape \(5, 5\) for tokens of d = 5, found \(4, 5\)"),
    "a single W": (lambda: train(W.astype(np.float32)), "W: expected dtype float64 as the tokens have, found float32"),
    "an integer W": (lambda: train(W.astype(int)), "W: expected dtype float64 as the tokens have, found int"),
    "NaN in W": (lambda: train(W * np.nan), "weights: expected finite numbers, found NaN or infinity"),
    "K and Q of two widths": (
        lambda: train(attention.Factored(W, W[:, :3])),
        r"K, Q: expected the same shape \(d, m\), found \(5, 5\) and \(5, 3\)",
    ),
    "no Q": (lambda: train(attention.Factored(W, None)), r"weights: expected an array .*found NoneType as Q"),
    "a pair of weights": (lambda: train((W, W)), r"weights: expected an array or Factored\(K, Q\), found tuple as W"),
    "coefficients of other queries": (
        lambda: train(attention.Spanned(W[:n], W[:n])),
        "Z: expected the problem's queries",
    ),
    "weights without a problem": (lambda: descent.train(W, None), PROBLEM + "NoneType"),
    "scores of no problem": (lambda: tokens.scores(as_it_is(W)), PROBLEM),
    # Training.
    "no steps": (lambda: train(steps=0), "steps: expected at least 1, found 0"),
    "half a step": (lambda: train(steps=2.5), "steps: expected an integer, found 2.5"),
    "steps in words": (lambda: train(steps="10"), "steps: expected an integer, found '10'"),
    "10**15 steps": (lambda: train(steps=10**15), "steps: expected at most 2,147,483,647, found 1,000,000,000,000,000"),
    "nothing recorded": (lambda: train(record_every=0), "record_every: expected at least 1, found 0"),
    "snapshots out of order": (
        lambda: train(snapshots=(3, 2)),
        r"snapshots: expected increasing steps within 0..10, found \(3, 2\)",
    ),
    "snapshots out of range": (
        lambda: train(snapshots=(11,)),
        r"snapshots: expected increasing steps within 0..10, found",
    ),
    "a half snapshot": (lambda: train(snapshots=(1.5,)), r"snapshots: expected whole numbers, found \(1.5,\)"),
    "a number of snapshots": (lambda: train(snapshots=5), "snapshots: expected a list of whole numbers, found 5"),
    "snapshots in words": (lambda: train(snapshots="ab"), "snapshots: expected a list of whole numbers, found 'ab'"),
    "an optimizer's name": (
        lambda: train(optimizer="adam"),
        r"optimizer: expected an optax transformation such as descent.gd\(0.1\), found 'adam'",
    ),
    "an optimizer that is not made": (
        lambda: train(optimizer=descent.gd),
        "optimizer: expected an optax transformation",
    ),
    "a scale-free number": (
        lambda: descent.scale_free(0.1),
        "optimizer: expected an optax transformation such as .*, found 0.1",
    ),
    "momentum of a name": (
        lambda: descent.momentum("adam"),
        "optimizer: expected an optax transformation such as .*, found 'adam'",
    ),
    "momentum for ever": (lambda: descent.momentum(descent.gd(0.1), 1.0), "decay: expected a number .*, found 1.0"),
    "a mirror of True": (lambda: descent.mirror(True, 0.1), "p: expected a number above 1, found True"),
    "a mirror with a word": (lambda: descent.mirror("3", 0.1), "p: expected a number above 1, found '3'"),
    "a step of NaN": (lambda: descent.gd(np.nan), "step_size: expected a positive finite number, found nan"),
    "a step in words": (
        lambda: descent.normalized_gd("0.1"),
        "step_size: expected a positive finite number, found '0.1'",
    ),
    "a negative penalty": (
        lambda: descent.normalized_gd(0.1, penalty=-1),
        "penalty: expected a finite number of at least 0",
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
    "a head of layers": (
        lambda: train(head=heads.mlp),
        r"v: expected a layer, .* for the mlp head, found shape \(5,\)",
    ),
    "a penalty in words": (lambda: heads.Quadratic("a"), "penalty: expected a finite number of at least 0, found 'a'"),
    "a batch of one length and another": (
        lambda: descent.train_batch(np.zeros((2, d, d)), instances.problems(3)),
        r"batch: expected one leading axis of one length, found lengths \{2, 3\}",
    ),
    "chunks of nothing": (
        lambda: batch.over_seeds(jnp.sum, np.ones(3), chunk=0),
        "chunk: expected at least 1, found 0",
    ),
    # Constraints.
    "an alpha too few": (lambda: alpha([0, 1]), r"alpha: expected 3 integers, found shape \(2,\)"),
    "an alpha of T": (lambda: alpha([0, 1, T]), r"alpha: expected tokens 0..3, found \[4\]"),
    "a negative alpha": (lambda: alpha([0, 1, -1]), r"alpha: expected tokens 0..3, found \[-1\]"),
    "an alpha of floats": (lambda: alpha([0.0, 1.0, 2.0]), "alpha: expected 3 integers, found .* of float64"),
    "an alpha of texts": (lambda: alpha(["a", "b", "c"]), "alpha: expected 3 integers, found .* of <U1"),
    "an alpha of truths": (lambda: alpha([True, False, True]), "alpha: expected 3 integers, found .* of bool"),
    "no alpha": (lambda: alpha(None), "alpha: expected 3 integers, found .* of object"),
    "sets of nothing": (
        lambda: svm.set_constraints(instances.problem(), np.zeros((n, T), bool)),
        r"selected: expected a token in every input, found none in \[0, 1, 2\]",
    ),
    "logits of texts": (
        lambda: svm.finite_constraints(instances.problem(), np.ones((n, T), bool), [["a"] * T] * n),
        "logits: expected real numbers, found <U1",
    ),
    "no logits": (
        lambda: svm.finite_constraints(instances.problem(), np.ones((n, T), bool), None),
        "logits: expected real numbers, found object",
    ),
    "logits too wide": (
        lambda: svm.finite_constraints(instances.problem(), np.ones((n, T), bool), np.ones((n, T + 1))),
        r"logits: expected shape \(3, 4\), found \(3, 5\)",
    ),
    "a prompt for one input": (lambda: svm.prompt_constraints(np.ones((T, d)), [0]), r"X: expected shape \(n, T, d\)"),
    "groups without queries": (
        lambda: svm.listed([np.eye(3)], np.eye(2)),
        r"listed: expected queries \(n, e\) and for",
    ),
    "NaN in a group": (lambda: svm.listed([np.eye(3) * np.nan], np.eye(3)[:1]), r"differences\[0\]: expected finite"),
    "empty groups": (
        lambda: svm.listed([np.zeros((0, 3))], np.eye(3)[:1]),
        "listed: expected at least one row, found 1",
    ),
    "a price of nothing": (lambda: svm.soft(rows(), C=0), "C: expected positive numbers, found 0"),
    "a price in words": (lambda: svm.soft(rows(), C="a"), "C: expected real numbers, found <U1"),
    "two prices": (
        lambda: svm.soft(rows(), C=[1, 2]),
        r"C: expected a number or one for each row, .*found shape \(2,\)",
    ),
    "constraints of NaN": (
        lambda: svm.solve(rows(differences=rows().differences * np.nan)),
        "constraints: expected finite differences, found 45 NaN or infinite entries",
    ),
    "targets of another shape": (
        lambda: svm.solve(rows(targets=jnp.ones((2, 2)))),
        r"constraints: expected targets \(3, 3\), found \(2, 2\)",
    ),
    "a negative price": (
        lambda: svm.solve(rows(penalty=-jnp.ones((n, T - 1)))),
        "constraints: expected a positive penalty, found -1.0",
    ),
    "truths as numbers": (
        lambda: svm.solve(rows(equal=jnp.ones((n, T - 1)))),
        "constraints: expected equal of truth values, found float64",
    ),
    "one problem as a batch": (
        lambda: svm.solve_batch(rows()),
        r"constraints: expected differences \(batch, n, m, d\)",
    ),
    # Solving.
    "an unknown norm": (lambda: svm.solve(rows(), norm="max2"), "norm: expected one of .*'nuclear'.*found 'max2'"),
    "norms in a list": (lambda: svm.solve(rows(), norm=["nuclear"]), r"norm: expected one of .*found \['nuclear'\]"),
    "p below 1": (lambda: svm.entrywise(0.5), "p: expected at least 1, found 0.5"),
    "p in words": (lambda: svm.entrywise("a"), "p: expected at least 1, found 'a'"),
    "rank 0": (lambda: svm.nuclear_of_rank(0), "m: expected an integer rank of at least 1, found 0"),
    "no solver": (lambda: svm.solve(rows(), solver=[]), "solver: expected at least one, found an empty list"),
    "a solver's name": (lambda: svm.solve(rows(), solver="cvxpy"), "solver: expected a solver such as .*found 'cvxpy'"),
    "a problem to solve": (
        lambda: svm.solve(instances.problem()),
        "constraints: expected Constraints, .*found Problem",
    ),
    # Solutions and directions.
    "no direction": (
        lambda: metrics.correlation(0 * W, W),
        "correlation: expected A with a direction, found a matrix of",
    ),
    "two shapes": (lambda: metrics.correlation(W, W[:4]), "correlation: expected two matrices of one shape, found"),
    "a direction in words": (lambda: metrics.correlation("a", W), "metrics: expected a matrix, found 'a'"),
    "the rank of a number": (lambda: metrics.rank(5.0), "metrics: expected a matrix, found 5.0"),
    # Paths.
    "falling radii": (
        lambda: regularization.path(instances.problem(), [1.0, 0.5]),
        r"radii: expected positive and increasing numbers, found \[1.0, 0.5\]",
    ),
    "radii in words": (
        lambda: regularization.path(instances.problem(), "a"),
        "radii: expected a list of numbers, found 'a'",
    ),
    "a ball's name": (
        lambda: regularization.path(instances.problem(), [1.0], ball=as_it_is("nuclear")),
        "ball: expected one such as regularization.FROBENIUS, found 'nuclear'",
    ),
    # Claims.
    "no criteria": (lambda: claims.together([]), "criteria: expected at least one, found none"),
    "a judgement of nothing": (
        lambda: claims.Judgement(()),
        "stated: expected at least one criterion, found none",
    ),
    "a correction without criteria": (
        lambda: claims.Judgement([claims.above("x", claims.Number.exact(1.0), 0.0)], correction="y"),
        "correction: expected a sentence and criteria for it, or neither",
    ),
    "an experiment that is not there": (
        lambda: claims.experiment("jaxattn.experiments.nowhere"),
        "experiment: expected a module jaxattn.experiments.nowhere, found none",
    ),
}
