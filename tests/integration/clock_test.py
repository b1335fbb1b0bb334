"""The wall clock jumps by an hour while a call waits: its limit of time stays what it was.

Usage: clock_test.py HEDDLE CLOCK_FAULTS.
"""
import os
import socket
import subprocess
import sys
import time

from harness import HEDDLE, PATIENCE, Scratch, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from clocks import WallClock  # noqa: E402

LIBRARY = os.path.abspath(sys.argv[2])
LIMIT = 10  # Seconds that `heddle status` waits for an answer.
HOUR = 3600


def check(folder, jump):
    clock = WallClock(os.path.join(folder, f"clock{jump}"))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        silent.settimeout(PATIENCE)
        begun = time.monotonic()
        with subprocess.Popen([HEDDLE, "status", "--coordinator", f"127.0.0.1:{silent.getsockname()[1]}"],
                              env={**os.environ, "LD_PRELOAD": LIBRARY, "HEDDLE_CLOCK_FILE": clock.path},
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
            with silent.accept()[0]:
                wait_for("a wait of the call", lambda: time.monotonic() > begun + 1)
                clock.jump(jump)
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise AssertionError(f"the clock jumped by {jump} s, and the call goes on after {PATIENCE} s")
                took = time.monotonic() - begun
            said = process.stderr.read()
    print(f"jump of {jump:+d} s: ended after {took:.1f} s, time asked for {clock.seen()} times since", flush=True)
    assert "does not answer" in said and said.strip().count("\n") == 0, said
    assert took > LIMIT - 1, f"the clock jumped by {jump} s, and the call ended after {took:.1f} s"


def main():
    with Scratch() as folder:
        for jump in (-HOUR, HOUR):
            check(folder, jump)


main()
