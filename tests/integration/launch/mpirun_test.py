"""The smoke job with its workers started by `mpirun`."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch  # noqa: E402
from harness.launched import check_launcher  # noqa: E402


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        sys.exit(77)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with Scratch() as folder:
        check_launcher(folder, "mpirun", environment)


main()
