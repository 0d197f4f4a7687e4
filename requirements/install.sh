#!/bin/sh
# Makes $VENV with the locked packages of this Python minor, then links the package into it: by uv if that is on the
# PATH, which takes seconds, else by pip.
set -eu

fail() { echo "jaxattn: $1" >&2; exit 1; }

command -v "$PYTHON" >/dev/null 2>&1 ||
  fail "no '$PYTHON' on the PATH; install Python 3.11, 3.12 or 3.13, or name one: make PYTHON=python3.12"
minor=$("$PYTHON" -c 'import sys; print("%d%d" % sys.version_info[:2])')
lock="requirements/py$minor.txt"
[ -f "$lock" ] ||
  fail "'$PYTHON' is Python $(echo "$minor" | sed 's/^\(.\)/\1./'); expected one of 3.11, 3.12, 3.13; name one: make PYTHON=python3.12"

if command -v uv >/dev/null 2>&1; then
  echo "jaxattn: installing the locked packages of $lock into $VENV with uv"
  uv venv --quiet --clear --python "$PYTHON" "$VENV"
  install="uv pip install --quiet --python $VENV/bin/python --compile-bytecode"
  check="uv pip check --python $VENV/bin/python"
else
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$PYTHON' lacks the venv module; on Debian and Ubuntu: apt install python3-venv (or install uv)"
  echo "jaxattn: installing the locked packages of $lock into $VENV (a minute or two)"
  "$PYTHON" -m venv --clear "$VENV"
  install="$VENV/bin/python -m pip --disable-pip-version-check install --quiet"
  check="$VENV/bin/python -m pip --disable-pip-version-check check"
fi
$install --require-hashes -r "$lock"
$install --no-deps --no-build-isolation --editable .
$check >/dev/null 2>&1 || fail "the installed packages do not fit together: $($check 2>&1)"
