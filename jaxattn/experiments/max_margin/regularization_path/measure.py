"""From the record of a regularization path to its distance from the max-margin solutions, radius by radius."""

from jaxattn.study.measuring.paths import measure

__all__ = ["measure"]
