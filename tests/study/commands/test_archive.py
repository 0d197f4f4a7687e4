"""An archive holds figures, claims and records with their checksums, and replaces nothing."""

import hashlib
import tarfile

import pytest

from jaxattn.study import command, making, runs
from jaxattn.study.commands import archive
from jaxattn.study.configuration import composition

NAME = "rate"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A folder in which an experiment looks finished: its records and figures are files of a few letters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "is_recorded", lambda config: (runs.record_path(config) / "zarr.json").is_file())
    for config in making.configurations(NAME, ["size=small"]):
        record = runs.record_path(config)
        record.mkdir(parents=True, exist_ok=True)
        (record / "zarr.json").write_text(str(record))
        (record.parent / "record.zarr.lock").touch()
    figures = making.place(composition.compose(["size=small"]))
    figures.mkdir(parents=True)
    for file in (f"{NAME}.png", f"{NAME}.pdf", "claims.json", "README.md"):
        (figures / file).write_text(file)
    return tmp_path


def packed(path):
    with tarfile.open(path) as opened:
        return {one.name: opened.extractfile(one).read() for one in opened.getmembers()}  # pyright: ignore


def test_every_file_is_packed_with_its_checksum(made, capsys):
    command.main(["archive", NAME, "size=small", "--to", "packed.tar"])
    found = {name.partition("/")[2]: content for name, content in packed("packed.tar").items()}
    sums = dict(line.split("  ")[::-1] for line in found.pop(archive.CHECKSUMS).decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    expected = {file for file in made.rglob("*") if file.is_file() and file.suffix not in (".lock", ".tar")}
    assert {made / name: content for name, content in found.items()} == {one: one.read_bytes() for one in expected}
    assert f"{len(found)} files" in capsys.readouterr().out


def test_an_experiment_with_a_table_is_packed_with_it(made):
    table = made / "figures/small/tables/tensor-trick.md"
    for config in making.configurations("tensor-trick", ["size=small"]):
        runs.record_path(config).mkdir(parents=True)
        (runs.record_path(config) / "zarr.json").touch()
    with pytest.raises(SystemExit, match="2"):
        command.main(["archive", "tensor-trick", "size=small", "--to", "packed.tar"])
    table.parent.mkdir()
    table.write_text("of numbers")
    command.main(["archive", "tensor-trick", "size=small", "--to", "packed.tar"])
    found = {name.partition("/")[2]: content for name, content in packed("packed.tar").items()}
    assert found["figures/small/tables/tensor-trick.md"] == b"of numbers"
    assert not [name for name in found if name.endswith((".png", ".pdf"))]


@pytest.mark.slow
def test_equal_files_give_an_equal_archive(made):
    for name in ("one.tar", "two.tar"):
        command.main(["archive", NAME, "size=small", "--to", name])
    assert (made / "one.tar").read_bytes() == (made / "two.tar").read_bytes()


def test_what_is_missing_is_named_and_nothing_is_written(made, capsys):
    (made / "figures/small" / f"{NAME}.pdf").unlink()
    with pytest.raises(SystemExit, match="2"):
        command.main(["archive", NAME, "size=small", "--to", "packed.tar"])
    assert f"`jaxattn figures` makes {NAME}" in capsys.readouterr().err
    assert not list(made.glob("packed*"))


@pytest.mark.parametrize(
    ("given", "told"),
    [([], "expected --to FILE"), (["--to", "mine.tar"], "--to: expected the name of a new file, found mine.tar")],
)
def test_no_place_and_a_file_that_is_there_are_refused_before_any_work(made, capsys, given, told):
    (made / "mine.tar").write_text("of years")
    with pytest.raises(SystemExit, match="2"):
        command.main(["archive", NAME, *given])
    assert told in capsys.readouterr().err
    assert (made / "mine.tar").read_text() == "of years"


def test_a_file_that_appears_meanwhile_is_kept_and_nothing_begun_is_left(made):
    (made / "mine.tar").write_text("of years")
    with pytest.raises(FileExistsError):
        archive.write(made / "mine.tar", {"a": made / "figures/small/claims.json"})
    assert (made / "mine.tar").read_text() == "of years"
    assert not list(made.glob("*.part"))
