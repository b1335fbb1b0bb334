"""The independent implementation in PyTorch, tests/python/reference_model.py, on what export_training has exported."""
import json
import os
import subprocess
import sys

from harness import REPOSITORY

PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's torch.
REFERENCE = os.path.join(REPOSITORY, "tests", "python", "reference_model.py")


def require():
    """Ends the test with 77 (skipped) without torch."""
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True).returncode != 0:
        print(f"SKIPPED: no torch for {PYTHON} (package python3-torch)", file=sys.stderr)
        sys.exit(77)


def train(export, job, steps, folder):
    """The losses and gradient norms of the job, from its initial weights and on its batches. `export`: the program
    export_training, which writes them to `folder`."""
    subprocess.run([export, job, str(steps), folder], check=True, timeout=60)
    done = subprocess.run([PYTHON, REFERENCE, os.path.join(folder, "index.json")], check=True, timeout=240,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
