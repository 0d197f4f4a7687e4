"""Judgements on joint training from labelled numbers, for descent and for regularization paths."""

from __future__ import annotations

from collections.abc import Mapping

from jaxattn.study.claims import Criterion, Datasets, Judgement, Number, counts_of


def judgement(
    summaries: Datasets,
    numbers: Mapping[str, Number],
    stated: tuple[Criterion, ...],
    undecided: str,
    remark: str,
    **more: object,
) -> Judgement:
    """Return a judgement that reports these numbers, with an interval for each that has one.

    Args:
        summaries: of all runs, with their counts.
        numbers: to report, by label.
        stated: the criteria of the statement.
        undecided: why the data cannot decide; empty if they can.
        remark: what a reader should know besides the verdict.
        more: other fields of the judgement.
    """
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of(summaries),
        stated=stated,
        undecided=undecided,
        remark=remark,
        **more,  # pyright: ignore[reportArgumentType]
    )
