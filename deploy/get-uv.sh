#!/bin/sh
# Installs uv into the given directory without root and without touching the system's Python.
# Ways, in order: a virtual environment, the system's pip, and Debian's pip wheel unpacked beside us.
set -eu
place=$1
python=${PYTHON:-python3}
mkdir -p "$place"

if "$python" -m venv "$place/env" >/dev/null 2>&1; then
    "$place/env/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
    mkdir -p "$place/bin"
    ln -sf ../env/bin/uv "$place/bin/uv"
    exit 0
fi
rm -rf "$place/env"

if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip install --quiet --disable-pip-version-check --target "$place" 'uv>=0.9'
    exit 0
fi

if command -v apt-get >/dev/null 2>&1; then
    (cd "$place" && apt-get download -q python3-pip-whl && dpkg -x python3-pip-whl_*.deb pip)
    wheel=$(ls "$place"/pip/usr/share/python-wheels/pip-*.whl | head -n 1)
    "$python" "$wheel/pip" install --quiet --disable-pip-version-check --target "$place" 'uv>=0.9'
    exit 0
fi

echo "uv could not be installed: this Python has neither venv nor pip. Install uv, or: apt-get install python3-venv" >&2
exit 1
