#!/usr/bin/env python3
"""What happens to an MPI job when a rank dies, stops or never comes: every other rank ends long before the deadline of
its call, with an error that names the cause, and the job ends. Usage: failure_test.py MPIRUN PROGRAM [CASE…]"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

RANKS = 3
# The jobs mostly wait.
AT_ONCE = 2
# What only a fault exceeds, however busy the machine is.
AMPLE = 150
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def launch(mpirun, program, how, *options):
    # Open MPI's own files, too: the folder that it makes for all jobs goes with the one that ends first.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [mpirun, "--oversubscribe", "--bind-to", "none", *options, "-np", str(RANKS), program, how, folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              stdin=subprocess.DEVNULL, timeout=AMPLE, env={**ENVIRONMENT, "TMPDIR": folder})
    return done.returncode, done.stdout


def expect(condition, what, output):
    if not condition:
        raise AssertionError(f"{what}\n{output}")


def survivors(output, pattern):
    """Every rank but 1 said what `pattern` says."""
    for rank in range(RANKS):
        if rank == 1:
            continue
        said = re.search(rf"^rank-{rank}: (.*)$", output, re.MULTILINE)
        expect(said, f"rank {rank} said nothing", output)
        expect(re.search(pattern, said[1]), f"rank {rank} did not say {pattern}", output)


def kill(mpirun, program):
    code, output = launch(mpirun, program, "kill")
    expect(code != 0, "mpirun reports success", output)
    expect(re.search(r"process rank 1 .*exited on signal 9", output), "mpirun does not name the rank", output)


def kill_survived(mpirun, program):
    """mpirun told to let the others live: they learn it from the silence."""
    _, output = launch(mpirun, program, "kill", "--enable-recovery")  # It reports success all the same.
    survivors(output, "rank-1 was lost")


def stop(mpirun, program):
    code, output = launch(mpirun, program, "stop")
    expect(code != 0, "mpirun reports success", output)
    survivors(output, "rank-1 was lost: no sign of life over MPI")
    # The stopped rank may wake, and say so too, before mpirun ends it.
    finished = set(re.findall("^rank-([0-9]) finish: (?:UNAVAILABLE|DEADLINE_EXCEEDED)", output, re.MULTILINE))
    expect(finished >= {"0", "2"}, "Finish did not say that it could not", output)


def absent(mpirun, program):
    code, output = launch(mpirun, program, "absent")
    expect(code != 0, "mpirun reports success", output)
    survivors(output, "DEADLINE_EXCEEDED: forming a group")


def late(mpirun, program):
    code, output = launch(mpirun, program, "late")
    expect(code != 0, "mpirun reports success", output)
    survivors(output, "rank-1 forms generation 2, this worker generation 1")


def exhausted(mpirun, program):
    """What fails before MPI knows of it spoils nothing: the rank tries again and meets the others."""
    code, output = launch(mpirun, program, "exhausted")
    expect(re.search(r"^rank-1: RESOURCE_EXHAUSTED: eventfd", output, re.MULTILINE), "nothing was refused", output)
    expect(code == 0, "the job failed", output)
    survivors(output, "^OK$")


CASES = {case.__name__: case for case in (kill, kill_survived, stop, absent, late, exhausted)}


def judge(name, mpirun, program):
    """What is wrong, or nothing."""
    try:
        CASES[name](mpirun, program)
        return None
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return error


def main():
    mpirun, program, *names = sys.argv[1:]
    names = names or list(CASES)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, error in zip(names, pool.map(lambda name: judge(name, mpirun, program), names)):
            failed += error is not None
            print(f"FAILED {name}: {error}" if error else f"ok {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
