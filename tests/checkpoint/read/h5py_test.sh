#!/bin/sh
# Reads a checkpoint with h5py and the registered zstd filter and compares it with the raw elements.
# Usage: h5py_test.sh CHECKPOINT_SAMPLE BUILD_FOLDER. Needs PyPI's hdf5plugin: in HEDDLE_H5PY_PYTHON, or in a
# virtual environment in the build folder, which is made when PyPI can be reached. Exit 77: skipped.
set -eu
sample=$1
build=$2
script=$(dirname "$0")/h5py_test.py
python=${HEDDLE_H5PY_PYTHON:-$build/h5py-venv/bin/python}
ready() { "$python" -c 'import h5py, hdf5plugin' 2>/dev/null; }
if ! ready && [ -z "${HEDDLE_H5PY_PYTHON:-}" ]; then
  (
    flock 9  # Another test makes the same one.
    ready || {
      /usr/bin/python3 -m venv --clear --system-site-packages "$build/h5py-venv" &&
        timeout 120 "$python" -m pip install --quiet --disable-pip-version-check hdf5plugin || true
    }
  ) 9>"$build/h5py-venv.lock"
fi
if ! ready; then
  echo "SKIPPED: no Python with h5py and hdf5plugin ($python), and PyPI could not provide them" >&2
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$sample" "$folder"
"$python" "$script" "$folder"
