"""The distance of a long run from the max-margin solutions, snapshot by snapshot."""

from jaxattn.experiments.local.limits import measure

__all__ = ["measure"]
