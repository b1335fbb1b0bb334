"""The smoke job with its workers started by `srun`, in a Slurm of this machine alone."""
import sys

from harness import Scratch
from harness.launched import check_launcher
from harness.slurm import Slurm, Unavailable


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
