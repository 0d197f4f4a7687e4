"""Every experiment composes, runs at size=small, and is reused; mistakes are named before anything runs."""

import functools
import json

import pytest

from jaxattn import records
from jaxattn.study import fingerprints, making, runs
from jaxattn.study.claims import DOUBTED, EXCLUDED, experiment
from jaxattn.study.commands import figures, judge
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import experiments
from jaxattn.study.mistakes import UsageError
from jaxattn.study.settings import recording, texts, training
from jaxattn.study.style import page, table
from tests.experiments.test_claims import module_of


@pytest.fixture(scope="module", autouse=True)
def _no_file_changes():
    with fingerprints.still():
        yield


@functools.cache
def configurations(name, *overrides):
    """Compose an experiment once for all tests: it takes a tenth of a second and more."""
    return making.configurations(name, list(overrides))


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_composes_and_instantiates_all_its_runs(name):
    configs = configurations(name)
    assert len({runs.folder(config) for config in configs}) == len(configs) >= 1
    for config in configs:
        setting = composition.setting_of(config)
        if isinstance(setting, training.Training | texts.TextTraining):
            # The paper's figures have 2000 steps; no experiment is decided by fewer.
            assert setting.steps >= 1500
        assert len(config.study.of) > 20
        assert len(config.study.departs) > 20
    rooms = experiment(configs[0].study.experiment)
    assert all(map(callable, (rooms.measure, rooms.draw or rooms.table)))
    assert rooms.of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments())
def test_every_experiment_is_small_at_size_small(name):
    configs = configurations(name, "size=small")
    assert 1 <= len(configs) <= min(4, len(configurations(name)))
    for config in configs:
        setting = composition.setting_of(config)
        assert setting.seeds == (8 if config.svm.solver is None else 2)
        assert recording.shapes(setting)


def test_a_large_size_has_runs_of_its_own_or_is_refused():
    large = {config.study.name: config.seeds for config in configurations("hierarchy", "size=large")}
    published = {config.study.name: config.seeds for config in configurations("hierarchy")}
    assert set(large) == set(published)
    assert all(large[name] > published[name] for name in ("K, Q", "readout alone", "inputs and readout for 500 steps"))
    with pytest.raises(UsageError, match="size=large: expected an experiment with runs of this size, found rate"):
        configurations("rate", "size=large")


def test_a_record_depends_on_the_fields_of_its_setting_alone():
    def folder(*overrides: str) -> str:
        return runs.folder(composition.compose(["experiment=feasibility", *overrides])).name

    assert folder() == folder("steps=7") == folder("weights=factored") == folder("svm=cvxpy")
    assert len({folder(), folder("data.n=3"), folder("data.d=[2]"), folder("tokens=optimal"), folder("seeds=3")}) == 5
    others = ([], ["tokens=uniform"], ["runs=x"], ["steps=7"])
    training = [runs.folder(composition.compose(one)).name for one in others]
    assert training[0] == training[1] == training[2] != training[3]


@pytest.mark.parametrize("size", ["published", "small"])
def test_the_finite_part_is_read_from_the_runs_of_the_multi_token_experiments(size):
    names = ("finite-part", "multi-token-mlp", "multi-token-lambda")
    own, mlp, of_lambda = ({*map(runs.folder, configurations(name, f"size={size}"))} for name in names)
    # Without the runs on the exact direction and under another key under the ReLUs, and without lambda = 0, where no
    # tokens are mixed.
    assert len(mlp - own) == (6 if size == "published" else 1)
    # Of the published size the runs over lambda are longer than those of their own experiment.
    assert len(own - mlp) == (5 if size == "published" else 2)
    assert (own - mlp <= of_lambda) is (size == "small")


def test_sizes_experiments_and_the_command_line_override_in_this_order():
    lines = ([], ["size=small"], ["size=small", "steps=7"])
    published, small, own = (composition.compose(["experiment=local-convergence", *more]) for more in lines)
    assert (published.seeds, published.steps, published.snapshots.every) == (100, 2000, 20)
    assert (small.seeds, small.steps, small.snapshots.every) == (8, 200, 20)
    assert (own.seeds, own.steps) == (8, 7)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Records and figures of all experiments at size=small."""
    place = tmp_path_factory.mktemp("small")
    # In this process, where all annotations are checked.
    overrides = ["size=small", "seeds=4", "steps=60", "workers=1"]
    overrides += [f"runs={place / 'runs'}", f"figures={place / 'figures'}"]
    figures.main(["--all", *overrides])
    return place, overrides


@pytest.mark.slow
@pytest.mark.timeout(2700)  # The first of these makes all experiments.
def test_figures_and_claims_of_every_experiment_are_made_at_size_small(small):
    place, _ = small
    folder = place / "figures" / "small"
    lines = json.loads((folder / "claims.json").read_text())
    assert {line["id"].partition(":")[0] for line in lines} == set(experiments())
    for line in lines:
        assert line["seconds"] > 0
        assert line["verdict"] == "not decided"  # 60 steps decide nothing, and must not pretend to.
        for run, counts in line["counts"].items():
            excluded = sum(counts.get(name, 0) for name in EXCLUDED)
            assert counts["attempted"] == counts["kept"] + excluded
            assert 0 <= sum(counts.get(name, 0) for name in DOUBTED) <= counts["kept"]
            assert set(counts) <= {"attempted", "kept", *EXCLUDED, *DOUBTED}
            # A descent is one a seed; drawn problems are one a seed and dimension, and fewer for a witness.
            one = "diverged" in counts
            assert counts["attempted"] == 4 if one else counts["attempted"] % (2 if " by " in run else 4) == 0
    for name in experiments():
        if experiment(configurations(name)[0].study.experiment).table:
            assert table.shown(folder, name).startswith("| ")
            assert not (folder / f"{name}.png").exists()
            continue
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        pdf = (folder / f"{name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF")
        # TrueType fonts, which can be edited and searched; the width of a column or of a page.
        assert b"/Type3" not in pdf
        assert any(f"/MediaBox [ 0 0 {72 * width:g} ".encode() in pdf for width in (page.COLUMN, page.PAGE))


@pytest.mark.slow
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("name", experiments())
def test_the_synthetic_measurements_of_every_experiment_look_like_what_is_measured(small, name):
    _, overrides = small
    configs = configurations(name, *overrides)
    measured = [making.measured(config) for config in configs]
    for run, synthetic in module_of(configs[0].study.experiment).measured().items():
        found = [unlike(synthetic, one) for one in measured]
        assert "" in found, (run, found)


KINDS = {"f": "number", "i": "count", "u": "count", "b": "truth"}


def unlike(synthetic, measured) -> str:
    """In what a synthetic dataset differs from a measured one; sizes may, and what no claim reads may be missing."""
    for name, variable in synthetic.variables.items():
        if name not in measured.variables:
            return f"{name} is not measured"
        wanted = measured.variables[name]
        if variable.dims != wanted.dims:
            return f"{name}: dims {variable.dims}, measured {wanted.dims}"
        if KINDS.get(variable.dtype.kind, "text") != KINDS.get(wanted.dtype.kind, "text"):
            return f"{name}: dtype {variable.dtype}, measured {wanted.dtype}"
    return ", ".join(f"attribute {name} is not measured" for name in set(synthetic.attrs) - set(measured.attrs))


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_claims_are_judged_again_from_the_records_that_are_there(small, capsys):
    place, overrides = small
    judge.main(["experiment=rate,trajectories-3", *overrides])
    printed = capsys.readouterr().out
    for line in json.loads((place / "figures" / "small" / "claims.json").read_text()):
        if line["id"].partition(":")[0] in ("rate", "trajectories-3"):
            assert f"{line['id']}: {line['verdict']}\n" in printed
    with pytest.raises(UsageError, match="expected the records of at least one experiment, found none"):
        judge.main(["experiment=rate", *overrides, f"runs={place / 'nowhere'}"])
    assert "rate (0 of 4 records)" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_a_second_call_draws_nothing_again(small, capsys):
    place, overrides = small
    before = (place / "figures" / "small" / "local-convergence.png").stat().st_mtime_ns
    figures.main(["--all", *overrides])
    assert capsys.readouterr().out.count(": unchanged\n") == len(experiments())
    assert (place / "figures" / "small" / "local-convergence.png").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_without_its_records_a_figure_is_made_again(small, capsys):
    place, overrides = small
    elsewhere = [*overrides, f"runs={place / 'elsewhere'}", "experiment=trajectories-3"]
    capsys.readouterr()
    figures.main(elsewhere)
    assert ": unchanged" not in capsys.readouterr().out
    assert len(list((place / "elsewhere").iterdir())) == 4


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    config = composition.compose(["seeds=2", "steps=20", f"runs={blocker}"])
    with pytest.raises(records.RecordError, match="cannot write"):
        runs.run(config)
