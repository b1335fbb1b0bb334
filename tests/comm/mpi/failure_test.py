#!/usr/bin/env python3
"""What happens to an MPI job when a rank dies, stops or never comes: every other rank ends within the bound with
an error that names the cause, and the job ends. Usage: failure_test.py MPIRUN PROGRAM [CASE…]"""
import os
import re
import subprocess
import sys
import time

RANKS = 3
# Silence of 1 s, a tenth of it between signs of life, and a machine that may be busy.
BOUND_S = 6.0
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def launch(mpirun, program, how, *options):
    begin = time.monotonic()
    command = [mpirun, "--oversubscribe", "--bind-to", "none", *options, "-np", str(RANKS), program, how]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT,
                          stdin=subprocess.DEVNULL, timeout=60)
    return done.returncode, done.stdout, time.monotonic() - begin


def expect(condition, what, output):
    if not condition:
        raise AssertionError(f"{what}\n{output}")


def survivors(output, pattern):
    """Every rank but 1 said what `pattern` says, in time."""
    for rank in range(RANKS):
        if rank == 1:
            continue
        said = re.search(rf"^rank-{rank}: (.*) after ([0-9.]+) s$", output, re.MULTILINE)
        expect(said, f"rank {rank} said nothing", output)
        expect(re.search(pattern, said[1]), f"rank {rank} did not say {pattern}", output)
        expect(float(said[2]) < BOUND_S, f"rank {rank} took {said[2]} s", output)


def kill(mpirun, program):
    code, output, seconds = launch(mpirun, program, "kill")
    expect(code != 0, "mpirun reports success", output)
    expect(seconds < 15, f"the job took {seconds:.1f} s to end", output)
    expect(re.search(r"process rank 1 .*exited on signal 9", output), "mpirun does not name the rank", output)


def kill_survived(mpirun, program):
    """mpirun told to let the others live: they learn it from the silence."""
    _, output, _ = launch(mpirun, program, "kill", "--enable-recovery")  # It reports success all the same.
    survivors(output, "rank-1 was lost")


def stop(mpirun, program):
    code, output, _ = launch(mpirun, program, "stop")
    expect(code != 0, "mpirun reports success", output)
    survivors(output, "rank-1 was lost: no sign of life over MPI")
    finishes = re.findall("finish: (UNAVAILABLE|DEADLINE_EXCEEDED)", output)
    expect(len(finishes) == RANKS - 1, "Finish did not say that it could not", output)


def absent(mpirun, program):
    code, output, _ = launch(mpirun, program, "absent")
    expect(code != 0, "mpirun reports success", output)
    survivors(output, "DEADLINE_EXCEEDED: forming a group")


def late(mpirun, program):
    code, output, _ = launch(mpirun, program, "late")
    expect(code != 0, "mpirun reports success", output)
    survivors(output, "rank-1 forms generation 2, this worker generation 1")


def exhausted(mpirun, program):
    """What fails before MPI knows of it spoils nothing: the rank tries again and meets the others."""
    code, output, _ = launch(mpirun, program, "exhausted")
    expect(re.search(r"^rank-1: RESOURCE_EXHAUSTED: eventfd", output, re.MULTILINE), "nothing was refused", output)
    expect(code == 0, "the job failed", output)
    survivors(output, "^OK$")


CASES = {case.__name__: case for case in (kill, kill_survived, stop, absent, late, exhausted)}


def main():
    mpirun, program, *names = sys.argv[1:]
    failed = 0
    for name in names or CASES:
        begin = time.monotonic()
        try:
            CASES[name](mpirun, program)
            print(f"ok {name} {time.monotonic() - begin:.1f} s", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
