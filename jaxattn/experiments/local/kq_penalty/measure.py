"""From the record of a long run to its distance from the max-margin solutions, snapshot by snapshot."""

from jaxattn.experiments.local.limits import measure

__all__ = ["measure"]
