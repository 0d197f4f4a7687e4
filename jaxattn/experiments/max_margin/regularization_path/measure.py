"""The distance of a regularization path from the max-margin solutions, radius by radius."""

from jaxattn.study.measuring.paths import measure

__all__ = ["measure"]
