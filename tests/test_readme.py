"""The README is short, its links and commands work, and its numbers are those of claims.json and bench.json."""

import json
import re
from pathlib import Path

import pytest

import jaxattn
from benchmarks.first_run import WHICH
from jaxattn.study import report, usage
from jaxattn.study.claims import Setting
from tests.docs.command_lines import FENCE

ROOT = Path(jaxattn.__file__).parents[1]
README = (ROOT / "README.md").read_text()
BENCH = json.loads((ROOT / "figures/bench.json").read_text())


def test_it_is_short_and_shows_some_commands_which_are_known():
    assert len(README.splitlines()) <= 140
    shown = re.findall(r"^jaxattn (\w+)", "".join(one[3] for one in FENCE.finditer(README) if one[2] == "sh"), re.M)
    assert len(shown) >= 4
    assert set(shown) <= set(usage.commands())


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+?)\)", README))))
def test_its_links_lead_somewhere(target):
    assert target.startswith("https://arxiv.org/abs/") or (ROOT / target).exists()


def rows_of(text: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if len(row) == 1 + len(Setting) and re.search(r"\d+, \d+, \d+, \d+", " ".join(row[1:]))]


def test_its_table_counts_the_verdicts_of_claims_json():
    counted, stated = (
        rows_of(text) for text in (report.counted(json.loads((ROOT / "figures/claims.json").read_text())), README)
    )
    assert sorted(row[1:] for row in stated) == sorted(row[1:] for row in counted)
    for paper, *numbers in counted:
        if found := re.match(r"arXiv \[(\d{4}\.\d{5})\]", paper):
            assert [row[1:] for row in stated if found[1] in row[0]] == [numbers]


def test_its_measured_times_are_those_of_the_benchmark():
    (step,) = (row for row in BENCH["descent"] if (row["weights"], row["rule"]) == ("W", "as published"))
    (microseconds, times) = re.search(r"takes ([\d.]+) µs a seed.*?([\d,]+) times faster", README, re.DOTALL).groups()  # pyright: ignore
    assert float(microseconds) == round(1e6 / step["instance-steps a second"], 2)
    assert int(times.replace(",", "")) == round(step["ratios"]["one seed, PyTorch loop"])
    (nuclear,) = (row for row in BENCH["svm"] if row["norm"] == "nuclear" and row["shape"] == [6, 8, 10])
    (ours, theirs) = re.search(r"nuclear solution takes ([\d.]+) ms,\s+against (\d+) ms", README).groups()  # pyright: ignore
    assert (float(ours), int(theirs)) == (round(nuclear["ms"], 2), round(nuclear["others ms"]["Clarabel"]))


def test_what_it_says_of_devices_is_that_of_the_benchmark():
    rows = [row for row in BENCH["accelerator"] if row["on"] != "both"]
    times = {(row["what"], row["on"], row["lanes"]): row["time"] for row in rows}
    told = re.search(r"H200 GPU trains W (\d+) and \(K, Q\) (\d+) times faster than 16 CPU", README)
    for name, ratio in zip(("W", "(K, Q)"), told.groups(), strict=True):  # pyright: ignore
        of_cpu, of_gpu = times[f"training {name}", "processor", 1000], times[f"training {name}", "accelerator", 65_536]
        assert int(ratio) == round(of_cpu / of_gpu)
    for norm in ("frobenius", "nuclear"):
        assert times[f"solving {norm}", "processor", 1000] < times[f"solving {norm}", "accelerator", 4096]


def test_the_times_of_its_commands_are_those_of_the_benchmark():
    minutes = {line["command"]: line["seconds"] / 60 for line in (*BENCH["first-run"], *BENCH["first-run-small"])}
    quoted = ("make venv", "jaxattn figures rate", "jaxattn figures size=small")
    told = re.search(r"takes (\d+) minute.*? (\d+), and a first.*? (\d+) minutes", README, re.DOTALL)
    assert [max(1, round(minutes[one])) for one in quoted] == [int(one) for one in told.groups()]  # pyright: ignore
    assert f"\njaxattn {WHICH}  # verdict: max\n" in README
    assert round(minutes[f"jaxattn {WHICH}"]) <= 1
