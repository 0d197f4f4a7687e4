"""The duration of each experiment when the checkout's figures were made."""

from __future__ import annotations

import json

from jaxattn.study.configuration.names import root


def of_checkout() -> dict[str, float]:
    """Return seconds by experiment from the checkout's claims.json (wheels carry it); empty if it cannot be read."""
    try:
        lines = json.loads((root() / "figures" / "claims.json").read_text())
        return {line["id"].partition(":")[0]: float(line["seconds"]) for line in lines}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
