#!/usr/bin/env python3
"""Two guests of scripts/rdma-vm that talk RDMA, and the faults of the network between them.

Usage: pair_test.py CHECK WRITE_PROBE [ARGUMENT…]
"""
import select
import socket
import subprocess
import sys

from vm import CONTROL, VM, check, json_of, lines_of, rdma_vm, run_check, wait_until

RETRIES_EXCEEDED = "transport retry counter exceeded"


def probe(program, *arguments, options=()):
    """What the two guests of write_probe printed: guest 0's line, guest 1's (None if it was powered off), all."""
    text, _ = rdma_vm("--guests", 2, "--env", f"HEDDLE_TEST_CONTROL={CONTROL}", *options, "--", program, *arguments)
    own = [line for line in json_of(text, 0) if isinstance(line, dict)]
    other = json_of(text, 1)[0] if lines_of(text, 1) else None
    return own[0], other, text


def counts(text):
    """{(from, to): counters} that guest 0 asked for."""
    for line in json_of(text, 0):
        if isinstance(line, list):
            return {(link["from"], link["to"]): link for link in line}
    return {}


def rping(_program, device, *kernel):
    """librdmacm's own test: connection management and data, checked by its option -V.

    Now and then siw leaves a first message unread (comm/transport/verbs/verbs_setup.cc says why): both begin again.
    The one that asks says when it is done, so that the other one does not leave before."""
    script = """
        ls /sys/class/infiniband
        for try in 1 2 3 4 5 6 7 8 9 10; do
          if [ $HEDDLE_GUEST = 0 ]; then
            timeout 15 rping -s -a 10.9.0.1 -C 20 -V -S 1000 2> log
            for tick in 1 2 3 4 5; do [ ! -e ../1/done ] || exit 0; sleep 0.1; done
          elif timeout 10 rping -c -a 10.9.0.1 -C 20 -V -S 1000 -v > log 2>&1; then
            touch done
            exec grep -c 'ping data: rdma-ping-' log
          else
            sleep 0.2
          fi
        done
        cat log
        exit 1
    """
    options = ["--kernel", kernel[0]] if kernel else []
    text, _ = rdma_vm("--guests", 2, "--device", device, *options, "--", "sh", "-c", script)
    check(lines_of(text, 0)[0] == f"{device}0", text)
    check(lines_of(text, 1) == [f"{device}0", "20"], text)


def exchange(program, *kernel):
    own, other, text = probe(program, 100, 100, "counts", options=["--kernel", kernel[0]] if kernel else [])
    check((own["completed"], own["status"]) == (100, "success") and other["holds"] == 100, text)
    there = counts(text)[0, 1]
    check(there["roce"] >= 99 and there["dropped"] == there["cut"] == there["overrun"] == 0, text)


def drop(program):
    """A lost packet, and only that one, is sent again: the write takes the transport's timeout and succeeds."""
    own, other, text = probe(program, 20, 20, "drop 0 1 1", "counts")
    check((own["completed"], own["status"]) == (20, "success") and other["holds"] == 20, text)
    check(counts(text)[0, 1]["dropped"] == 1, text)
    # Nominal 67 ms; a write without a loss takes less than one.
    check(own["milliseconds"] > 40, text)
    # A loss of the answer leaves the same trace at the writer.
    own, other, text = probe(program, 20, 20, "drop 1 0 1", "counts")
    check(own["completed"] == 20 and other["holds"] == 20 and counts(text)[1, 0]["dropped"] == 1, text)
    check(own["milliseconds"] > 40, text)


def drop_count(program):
    """Four losses in a row exceed three retries; TCP is not counted as RoCE and goes on."""
    own, other, text = probe(program, 20, 20, "drop 0 1 1 4", "counts")
    check((own["completed"], own["status"]) == (19, RETRIES_EXCEEDED) and other["holds"] == 19, text)
    check(counts(text)[0, 1]["dropped"] == 4, text)


def slower(program, link, least):
    """Every write takes at least so many ms; a busy machine takes as many more as it likes."""
    own, _, text = probe(program, 20, 10, link)
    check(own["completed"] == 20 and own["milliseconds"] >= least, text)


def delay(program):
    """One direction later by 30 ms: so is every completion, and nothing else."""
    slower(program, "delay 1 0 30000", 30)


def rate(program):
    """1 Mbit/s: a write of 4 KiB, with its headers, takes a little over 33 ms."""
    slower(program, "rate 0 1 1", 33)


def cut(program):
    """One way: the data does not arrive; or it does, its acknowledgement does not, and the write fails as well."""
    for link, holds in (("0 1", 9), ("1 0", 10)):
        own, other, text = probe(program, 20, 10, f"cut {link}", f"heal {link}")
        check((own["completed"], own["status"]) == (9, RETRIES_EXCEEDED), text)
        check(own["milliseconds"] > 200, text)
        check(other["holds"] == holds, text)


def power_off(program):
    own, other, text = probe(program, 20, 10, "power-off 1", "counts")
    check((own["completed"], own["status"]) == (9, RETRIES_EXCEEDED) and other is None, text)
    check(own["milliseconds"] > 200, text)
    check(counts(text)[0, 1]["gone"] > 0, text)


def freeze(program):
    """A guest that stands still answers nothing, and goes on where it was."""
    own, other, text = probe(program, 20, 10, "freeze 1", "thaw 1")
    check((own["completed"], own["status"]) == (9, RETRIES_EXCEEDED), text)
    check(other is not None, text)


def refused(_program):
    """Commands that make no sense are refused with a reason, and change nothing."""
    script = """
        for command in "cut 0" "cut 0 9" "fly 0 1" "drop 0 1" "drop 0 1 x" "drop 0 1 0" "delay 0 1" "power-off 2" \\
            freeze "network 1 cut 0 1" "network 0" "network cut"
        do
          "$HEDDLE_TEST_CONTROL" $command && echo "accepted: $command"
        done
        "$HEDDLE_TEST_CONTROL" delay '*' '*' 0
    """
    text, _ = rdma_vm("--env", f"HEDDLE_TEST_CONTROL={CONTROL}", "--", "sh", "-c", script)
    lines = text.splitlines()
    check(len(lines) == 13 and all(line.startswith("error: ") for line in lines[:12]) and lines[12] == "ok", text)


def networks(_program, *kernel):
    """Two interfaces in each guest: RDMA over both, and a command for one network leaves the other as it is."""
    script = """
        if [ $HEDDLE_GUEST = 0 ]; then
          for network in 0 1; do rping -s -a 10.9.$network.1 -C 5 -V > log 2>&1 || cat log; done
          until [ -e "$HEDDLE_VM/done" ]; do sleep 0.05; done
          exit
        fi
        ls /sys/class/infiniband
        for network in 0 1; do
          for try in 1 2 3 4 5 6 7 8 9 10; do
            timeout 10 rping -c -a 10.9.$network.1 -C 5 -V > log 2>&1 && echo "RDMA over $network" && break
            sleep 0.3
          done
        done
        "$HEDDLE_TEST_CONTROL" network 1 cut 1 0
        for network in 0 1; do busybox ping -c 1 -W 2 10.9.$network.1 > log && echo "an answer over $network"; done
        "$HEDDLE_TEST_CONTROL" network 1 counts
        "$HEDDLE_TEST_CONTROL" counts
        touch "$HEDDLE_VM/done"
    """
    options = ["--kernel", kernel[0]] if kernel else []
    text, _ = rdma_vm("--guests", 2, "--nics", 2, *options, "--env", f"HEDDLE_TEST_CONTROL={CONTROL}", "--", "sh", "-c",
                      script)
    lines = lines_of(text, 1)
    check(lines[:6] == ["rxe0", "rxe1", "RDMA over 0", "RDMA over 1", "ok", "an answer over 0"], text)
    second, first = json_of(text, 1)
    there = [{(link["from"], link["to"]): link for link in links}[1, 0] for links in (first, second)]
    check(len(lines) == 8 and there[0]["cut"] == 0 < there[1]["cut"], text)
    check(min(link["roce"] for link in there) > 0, text)


def host(_program):
    """The machine itself as a third: TCP between it and a guest that talks RDMA with another."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.settimeout(120)
        script = f"""
            if [ $HEDDLE_GUEST = 0 ]; then rping -s -a 10.9.0.1 -C 5 -V && echo greetings > text
              busybox nc -w 5 10.9.0.254 {server.getsockname()[1]} < text
            else
              for try in 1 2 3 4 5 6 7 8 9 10; do timeout 10 rping -c -a 10.9.0.1 -C 5 -V && break; sleep 0.3; done
            fi
        """
        command = [VM, "--guests", "2", "--host", "--", "sh", "-c", script]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as run:
            try:
                wait_until(lambda: select.select([server], [], [], 0)[0] or run.poll() is not None, 60, "a connection")
                if run.poll() not in (None, 0):
                    sys.exit(run.returncode)
                connection, peer = server.accept()
                with connection:
                    connection.settimeout(120)
                    check((connection.recv(100), peer[0]) == (b"greetings\n", "10.9.0.1"), "other bytes than sent")
                check(run.wait(timeout=60) == 0, f"exit code {run.returncode}")
            finally:
                run.terminate()


run_check(globals())
