"""Measures this machine for the jobs that most tests run, once for all of them.

Usage: measured.py HEDDLE FOLDER. Each test begins with a copy of FOLDER as its cache of measurements (HEDDLE_CACHE), so
that it does not measure beside the load of others, and what it measures itself reaches nobody.
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, SMOKE, processes  # noqa: E402
from harness.served import ALONE, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402


def main():
    heddle, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tempfile.TemporaryDirectory(prefix="heddle-test-") as scratch:
        for job in (SMOKE, write_job(scratch, prose(scratch), 10)):
            for workers in ([], ["--set", ALONE]):  # Slowed down as the job says, and at full speed.
                subprocess.run([heddle, "plan", job, *workers], check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL,
                               env={**os.environ, "HEDDLE_CACHE": folder}, preexec_fn=processes.tied())


main()
