"""Attention models: functions from parameters and a problem to the logits of one or several heads, and predictions.

A model is a value. `descent.train(params, problem, model=...)` trains its parameters, and `bias.rank(run, problems,
model=...)` compares them with the max-margin solutions for the tokens that it selects. Define a new model by one
function::

    def shifted(W, problem):
        return jnp.einsum("ntd,de,ne->nt", problem.X - problem.X.mean(axis=1, keepdims=True), W, problem.Z)


    run = descent.train(start, problem, model=shifted)
"""

from jaxattn.models.functions import Logits, of
from jaxattn.models.input_transforms import TransformedInputs, layer_normalized, normalized, plain, temperature
from jaxattn.models.positions import additive, key_only, rotary, sinusoidal
from jaxattn.models.protocol import Joint, Model, parts
from jaxattn.models.several import Heads, concatenated, summed
from jaxattn.models.tied import Tied, tied
from jaxattn.models.values import Valued, with_values

__all__ = [
    "Heads",
    "Joint",
    "Logits",
    "Model",
    "Tied",
    "TransformedInputs",
    "Valued",
    "additive",
    "concatenated",
    "key_only",
    "layer_normalized",
    "normalized",
    "of",
    "parts",
    "plain",
    "rotary",
    "sinusoidal",
    "summed",
    "temperature",
    "tied",
    "with_values",
]
