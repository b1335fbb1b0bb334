"""What the tests of scripts/rdma-vm share. Each is TEST.py CHECK [ARGUMENT…]: the name of one of its functions."""
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VM = str(ROOT / "scripts" / "rdma-vm")
CONTROL = str(ROOT / "scripts" / "vm" / "control")
UNAVAILABLE = 69


def rdma_vm(*arguments, expect=0, timeout=200, **options):
    """(standard output, standard error) of a run that must end with the code `expect`."""
    result = subprocess.run([VM, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False,
                            stdin=subprocess.DEVNULL, **options)
    if result.returncode == UNAVAILABLE and expect != UNAVAILABLE:
        print(result.stderr, end="")
        sys.exit(UNAVAILABLE)
    check(result.returncode == expect, f"rdma-vm {' '.join(map(str, arguments))}: exit code {result.returncode}, "
          f"expected {expect}\n{result.stdout}{result.stderr}")
    return result.stdout, result.stderr


def check(truth, text):
    if not truth:
        print(f"FAILED: {text}")
        sys.exit(1)


def lines_of(output, guest):
    """The lines that one of several guests printed."""
    prefix = f"[{guest}] "
    return [line[len(prefix):] for line in output.splitlines() if line.startswith(prefix)]


def json_of(output, guest):
    found = [line for line in lines_of(output, guest) if line.startswith(("{", "["))]
    check(found, f"guest {guest} printed no JSON:\n{output}")
    return [json.loads(line) for line in found]


def processes_with(word):
    """Command lines of this machine's processes that contain the word."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and path.parent.name != str(os.getpid()):
            found.append(f"{path.parent.name} {text}")
    return found


def wait_until(condition, seconds, what):
    limit = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < limit, f"not within {seconds} s: {what}")
        time.sleep(0.05)


def run_check(namespace):
    """main() of a test file."""
    name, arguments = sys.argv[1], sys.argv[2:]
    namespace[name](*arguments)
    print(f"{name}: passed")
