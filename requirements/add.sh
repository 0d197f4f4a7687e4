#!/bin/sh
# Adds the locked packages of one extra to $VENV, as requirements/install.sh made it: sh requirements/add.sh docs
set -eu

fail() { echo "jaxattn: $1" >&2; exit 1; }

minor=$("$VENV/bin/python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
lock="requirements/$1-py$minor.txt"
if command -v uv >/dev/null 2>&1; then
  install="uv pip install --quiet --python $VENV/bin/python"
  check="uv pip check --python $VENV/bin/python"
elif "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
  install="$VENV/bin/python -m pip --disable-pip-version-check install --quiet"
  check="$VENV/bin/python -m pip --disable-pip-version-check check"
else
  fail "$VENV was made by uv and has no pip; put uv on the PATH, or remove $VENV and run make again"
fi
echo "jaxattn: adding the locked packages of $lock to $VENV"
# The lock is complete, and the packages that both locks need are installed already.
$install --no-deps --require-hashes -r "$lock"
$check >/dev/null 2>&1 || fail "the installed packages do not fit together: $($check 2>&1)"
