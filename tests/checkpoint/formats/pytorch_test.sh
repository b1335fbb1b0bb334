#!/bin/sh
# Compares our reading and writing of PyTorch's files with PyTorch's own.
# Usage: pytorch_test.sh PYTORCH_SAMPLE. Needs a Python with torch: HEDDLE_TORCH_PYTHON, or Debian's. Exit 77: skipped.
set -eu
sample=$1
python=${HEDDLE_TORCH_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "SKIPPED: no torch in $python (Debian: python3-torch)" >&2
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$(dirname "$0")/pytorch_test.py" "$sample" "$folder"
