"""Pack figures, claims and the records they were made from into one file with checksums.

usage: jaxattn archive [NAME ...] [KEY=VALUE ...] --to FILE

  NAME            an experiment; all of them if none is named
  --to FILE       the archive to write, a tar file (records are compressed already); an existing file is
                  never overwritten
  size=small      the records of `jaxattn figures size=small`
  runs=DIR        where the records are: `runs` if not given
  figures=DIR     where the figures and claims.json are: `figures` if not given
  KEY=VALUE       as given to `jaxattn figures`

Examples:
  jaxattn archive --to jaxattn-records.tar
  jaxattn archive rate svm-rank --to two.tar

The archive holds one folder with `figures`, `runs` and a file SHA256SUMS. After unpacking, `sha256sum -c SHA256SUMS`
checks every file. Unpacked over a checkout of the same revision, its records are found and nothing is trained again.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxattn import __version__
from jaxattn.study import making, runs
from jaxattn.study.commands.figures import chosen
from jaxattn.study.configuration import composition
from jaxattn.study.mistakes import UsageError
from jaxattn.study.tuning import tune

CHECKSUMS = "SHA256SUMS"


def main(arguments: list[str]) -> None:
    """Write the archive and say how large it is.

    Raises:
        UsageError: no `--to`, a file that is there already, or experiments whose records or figures are missing.
        OSError: the archive cannot be written; what was begun of it is removed.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--to", type=Path)
    given, rest = parser.parse_known_args(arguments)
    if given.to is None:
        raise UsageError("archive: expected --to FILE, found no file to write")
    if given.to.exists():
        raise UsageError(f"--to: expected the name of a new file, found {given.to}")
    tune()
    names, overrides = chosen(rest)
    files = contents(names, overrides)
    write(given.to, files)
    size = given.to.stat().st_size / 2**20
    print(f"{given.to}: {len(files)} files, {size:.1f} MiB; {CHECKSUMS} inside has their checksums")


def contents(names: Sequence[str], overrides: Sequence[str]) -> dict[str, Path]:
    """Return the files to pack, by their names in the archive.

    Args:
        names: of experiments.
        overrides: as given to `jaxattn figures`.

    Raises:
        UsageError: an experiment without all of its records, or without a figure or table; all of them are named.
    """
    config = composition.compose(overrides)
    figures = making.place(config)
    missing, found = [], {}
    for name in names:
        configs = making.configurations(name, overrides)
        drawn = making.files(name, configs, figures)
        if not all(map(runs.is_recorded, configs)) or not all(file.is_file() for file in drawn):
            missing.append(name)
            continue
        folders = {runs.folder(one) for one in configs}
        for file in itertools.chain(drawn, *map(_below, sorted(folders))):
            root = config.runs if file not in drawn else config.figures
            found[f"{Path(root).name}/{file.relative_to(root)}"] = file
    claims = [figures / "claims.json", figures / "README.md"]
    missing += [file.name for file in claims if not file.is_file()]
    if missing:
        named = ", ".join(missing)
        raise UsageError(f"archive: expected finished records and figures; `jaxattn figures` makes {named}")
    return found | {f"{Path(config.figures).name}/{file.relative_to(config.figures)}": file for file in claims}


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files of a run, without the locks of those that write it."""
    return (file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".lock")


def write(path: Path, files: dict[str, Path]) -> None:
    """Write a tar file with the checksum of each file; equal files give an equal archive.

    Args:
        path: of the archive.
        files: to pack, by their names in the archive.

    Raises:
        OSError: a file cannot be read, or the archive cannot be written.
    """
    top = f"jaxattn-{__version__}"
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(begun, "xb") as raw, tarfile.open(fileobj=raw, mode="w") as archive:
            sums = []
            for name, file in sorted(files.items()):
                content = file.read_bytes()
                sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
                _add(archive, f"{top}/{name}", content)
            _add(archive, f"{top}/{CHECKSUMS}", "".join(sums).encode())
        os.link(begun, path)  # Unlike a rename this fails if the file has appeared meanwhile.
    finally:
        begun.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
