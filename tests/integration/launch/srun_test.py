"""The smoke job with its workers started by `srun`, in a Slurm of this machine alone."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch  # noqa: E402
from harness.launched import check_launcher  # noqa: E402
from harness.slurm import Slurm, Unavailable  # noqa: E402


def main():
    with Scratch() as folder:
        try:
            slurm = Slurm(folder).__enter__()
        except Unavailable as reason:
            print(f"SKIPPED: no Slurm here: {reason}")
            sys.exit(77)
        try:
            check_launcher(folder, "srun", slurm.environment)
        finally:
            slurm.__exit__()


main()
