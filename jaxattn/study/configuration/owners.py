"""Values that only another record takes, and an experiment that makes this record."""

from __future__ import annotations

from typing import Any, get_type_hints

from jaxattn.study.configuration.names import described, experiments, named


def of_others(setting: Any, keys: dict[str, str]) -> str:
    """Say which fields of a setting have values of types that another record asks for; "" if none has.

    A field whose own record names a type as well is not looked at: both may take it. The keys are those of the fields.

    Example:
        >>> of_others(training, {"law": "data"})
        'data: expected what a Training takes, found a Fixed, which a Decoders takes: add experiment=hierarchy'
    """
    own = _types(type(setting))
    said: dict[str, str] = {}
    for name in sorted(experiments(), key=lambda name: described(name).place):
        record = named(described(name).record)
        for field, kind in _types(record).items():
            if field in keys and field not in own and isinstance(getattr(setting, field), kind):
                expected = f"{keys[field]}: expected what a {type(setting).__name__} takes"
                found = f"found a {kind.__name__}, which a {record.__name__} takes: add experiment={name}"
                said.setdefault(field, f"{expected}, {found}")
    return "; ".join(said.values())


def _types(record: Any) -> dict[str, type]:
    """Return the types of a record's fields that have one."""
    hints = get_type_hints(record)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and hint is not Any}
