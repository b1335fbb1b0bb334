#!/usr/bin/env python3
"""One guest of scripts/rdma-vm, and its ends. Usage: guest_test.py CHECK [KERNEL]."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from vm import ROOT, VM, check, lines_of, processes_with, rdma_vm, run_check, wait_until


def basics(*kernel):
    """Exit codes, output, environment, scratch, what is writable and what is not, the RDMA device."""
    options = ["--kernel", kernel[0]] if kernel else []
    script = """
        echo "guest $HEDDLE_GUEST of $HEDDLE_GUESTS at $HEDDLE_ADDRESS says $WORD, $HEDDLE_TEST_PASSED"
        echo "on standard error" >&2
        pwd > where
        touch /etc/heddle-was-here 2> /dev/null && echo "the machine's files are writable"
        echo mine > /tmp/heddle-guest-file && cat /tmp/heddle-guest-file
        test -x "$1" || echo "the repository is not there"
        ls /sys/class/infiniband
        ulimit -l
        exit 7
    """
    with tempfile.TemporaryDirectory() as folder:
        options += ["--out", folder, "--env", "WORD=a 'quoted' $word"]
        text, _ = rdma_vm(*options, "--", "sh", "-c", script, "sh", VM, expect=7,
                          env={**os.environ, "HEDDLE_TEST_PASSED": "passed on"})
        expected = ["guest 0 of 1 at 10.9.0.1 says a 'quoted' $word, passed on", "on standard error", "mine", "rxe0",
                    "unlimited"]
        check(text.splitlines() == expected, f"the output is {text!r}")
        where = (pathlib.Path(folder) / "0" / "where").read_text(encoding="utf-8")
        check(where == f"{folder}/0\n", f"the scratch is {where!r}")
    check(not os.path.exists("/etc/heddle-was-here"), "a guest wrote to the machine's /etc")
    check(not os.path.exists("/tmp/heddle-guest-file"), "a guest wrote to the machine's /tmp")


def output():
    """Two mebibytes, byte by byte what was printed, with a last line that has no end."""
    text, _ = rdma_vm("--", "sh", "-c", "seq 300000; printf end")
    check(text == "".join(f"{i}\n" for i in range(1, 300001)) + "end", f"{len(text)} characters, other than printed")


def several():
    """Prefixes, addresses, the exit code of the one that failed first, and whether the others' work was let finish."""
    script = """
        echo "$HEDDLE_ADDRESS"
        [ $HEDDLE_GUEST != 1 ] || exit 5
        until [ -e "$HEDDLE_VM/status.1" ]; do sleep 0.05; done
        sleep 0.5
        echo last
        exit $((HEDDLE_GUEST * 2))
    """
    text, _ = rdma_vm("--guests", 3, "--", "sh", "-c", script, expect=5)
    for guest in range(3):
        expected = [f"10.9.0.{guest + 1}"] + (["last"] if guest != 1 else [])
        check(lines_of(text, guest) == expected, f"guest {guest}: {text!r}")


def bad_usage():
    """Mistakes are told in one line, with exit code 2, or 127 from the guest's shell."""
    for arguments in (["--guests", "0", "true"], ["--nics", "9", "true"], ["--env", "1=2", "true"],
                      ["--out", "/tmp/a b", "true"], [], ["--device", "siw", "--kernel", "qemu", "true"]):
        _, errors = rdma_vm(*arguments, expect=2)
        check("error: " in errors.splitlines()[-1], f"{arguments}: {errors}")
    text, _ = rdma_vm("--", "no-such-program-in-the-guest", expect=127)
    check("no-such-program-in-the-guest" in text, text)


def broken():
    """A guest that ends without an exit code of its command is an error of its own; it does not start again."""
    for command in ("poweroff", "reboot"):
        # What is printed passes through a pipe in the guest, which a guest that ends at once may take with it.
        text, errors = rdma_vm("--", "sh", "-c", f"echo once; sleep 1; busybox {command} -f; sleep 30", expect=125)
        check("guest 0 ended before its command did" in errors and text == "once\n", text + errors)


def started(folder, *command):
    """A run in the background whose guests have begun the command."""
    process = subprocess.Popen([VM, "--guests", "2", "--out", folder, "--", *command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (pathlib.Path(folder) / "go").exists() or process.poll() is not None, 60, "guests that run")
    return process


def ends():
    """The time limit, Ctrl-C, SIGTERM and SIGKILL of the script leave no process and no memory file behind."""
    with tempfile.TemporaryDirectory() as folder:
        _, errors = rdma_vm("--time-limit", 3, "--out", folder, "--", "sleep", "1000", expect=124)
        check("time limit of 3 s; not finished: guest 0" in errors, errors)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        with tempfile.TemporaryDirectory() as folder:
            # With processes of their own in the guests, which UML makes processes of the machine.
            process = started(folder, "sh", "-c", "sleep 1000 & sleep 1001")
            children = {pid for pid, parent in parents().items() if parent == process.pid}
            check(len(children) >= 3, f"the script's children are {children}: two guests and a relay were expected")
            family = descendants(children)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
            check(process.returncode == code, f"exit code {process.returncode} after signal {number}: {errors}")
            wait_until(lambda family=family: not family & parents().keys(), 60, f"processes that are left: {family}")
            check(not processes_with(folder), f"left over: {processes_with(folder)}")


def parents():
    """{process: its parent} of this machine, those that are only waiting to be collected left out."""
    table = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            table[int(path.parent.name)] = int(fields[1])
    return table


def descendants(pids):
    family, table = set(pids), parents()
    while True:
        more = {pid for pid, parent in table.items() if parent in family} - family
        if not more:
            return family
        family |= more


def unavailable():
    """A machine that has neither kernel is told so in one line, with an exit code of its own."""
    with tempfile.TemporaryDirectory() as empty:
        # An empty cache that cannot be filled: no make, no QEMU, no apt in the PATH; the relay can be compiled.
        links = pathlib.Path(empty) / "bin"
        links.mkdir()
        (links / "python3").symlink_to(os.path.realpath(sys.executable))
        for program in ("g++", "as", "ld"):
            (links / program).symlink_to(os.path.realpath(shutil.which(program)))
        environment = {"PATH": str(links), "HEDDLE_CACHE": empty, "HOME": empty}
        _, errors = rdma_vm("--", "true", expect=69, env=environment)
        check("cannot run the guests: uml: " in errors and "; qemu: " in errors, errors)
        report = pathlib.Path(empty) / "report"
        rdma_vm("--build", "--report", report, expect=69, env=environment)
        check("uml: " in report.read_text(encoding="utf-8"), "no report")
    check(str(ROOT) in VM, "the script under test is the repository's")


run_check(globals())
