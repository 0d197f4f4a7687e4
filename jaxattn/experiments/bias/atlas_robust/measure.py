"""From the record of a training: its margin ratios in every norm of the atlas."""

from jaxattn.experiments.bias.ratios import measure

__all__ = ["measure"]
