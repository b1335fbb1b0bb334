"""More connections than the coordinator may have descriptors: it answers, and a job trains; be they silent, or of
strangers that say one byte, who never take what is kept for files and members.
"""
import os
import resource
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, Scratch, processes, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import WORKERS, Cluster, write_job  # noqa: E402

STEPS = 20
LIMIT = 128
RESERVE = 32  # Of the listener.
IDLE = 200
ROUNDS = 5
ESTABLISHED = "01"  # A state of /proc/net/tcp.


class NarrowCluster(Cluster):
    """Its processes may have few descriptors, and cannot raise that."""

    def start(self, *command):
        tie = processes.tied()

        def narrow():
            tie()
            if command[1] == "serve":
                resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

        return subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, preexec_fn=narrow)


def soft_limit(process):
    with open(f"/proc/{process.pid}/limits", encoding="ascii") as limits:
        line = next(line for line in limits if line.startswith("Max open files"))
    return int(line.split()[3]), int(line.split()[4])


def check_raised(folder):
    """The first bound of a session is not that of the coordinator."""
    store = os.path.join(folder, "raised")
    path = os.path.join(store, "job.json")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    tie = processes.tied()

    def lower():
        tie()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    with subprocess.Popen([HEDDLE, "serve", "--store", store, "--listen", "127.0.0.1:0"], stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, preexec_fn=lower) as process:
        wait_for("the coordinator", lambda: os.path.exists(path))
        assert soft_limit(process) == (hard, hard), soft_limit(process)
        process.terminate()


def flood(listen, word):
    """More connections than there are descriptors, which begin with `word`."""
    host, port = listen.rsplit(":", 1)
    connections = []
    for _ in range(IDLE):
        connections.append(socket.create_connection((host, int(port)), timeout=PATIENCE))
        connections[-1].send(word)
    return connections


def descriptors(process):
    """What its descriptors are, by number."""
    folder = f"/proc/{process.pid}/fd"
    found = {}
    for name in os.listdir(folder):
        try:
            found[int(name)] = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            pass  # Closed meanwhile.
    return found


def is_connected(process, listen):
    """Whether the process has a connection to it."""
    own = descriptors(process).values()
    end = f":{int(listen.rsplit(':', 1)[1]):04X}"
    for family in ("tcp", "tcp6"):  # gRPC's own are of the latter.
        with open(f"/proc/net/{family}", encoding="ascii") as table:
            for row in map(str.split, table):
                if row[2].endswith(end) and row[3] == ESTABLISHED and f"socket:[{row[9]}]" in own:
                    return True
    return False


def check_answered_behind(cluster, word):
    """Strangers and `heddle status`, the last of all, are there before the coordinator looks at any of them."""
    cluster.coordinator.send_signal(signal.SIGSTOP)
    try:
        connections = flood(cluster.listen, word)
        asked = subprocess.Popen([HEDDLE, "status", "--coordinator", cluster.listen], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        wait_for("its connection", lambda: is_connected(asked, cluster.listen))
    finally:
        cluster.coordinator.send_signal(signal.SIGCONT)
    said, _ = asked.communicate(timeout=PATIENCE)
    assert asked.returncode == 0, said
    return connections


def check_reserve(process):
    """No connection has one of the last descriptors, but for one that is being judged."""
    high = [number for number, what in descriptors(process).items()
            if number >= LIMIT - RESERVE and what.startswith("socket:")]
    assert len(high) <= 1, high


def main():
    with Scratch() as folder:
        check_raised(folder)
        job = write_job(folder, prose(folder), STEPS)
        with NarrowCluster(folder, "narrow") as cluster:
            cluster.serve()
            connections = []
            for word in (b"", b"\x16", b"P"):
                for _ in range(ROUNDS):
                    connections += check_answered_behind(cluster, word)
                    check_reserve(cluster.coordinator)
            cluster.submit(job)
            for name in WORKERS:
                cluster.worker(name)
            wait_for("a step", lambda: cluster.run.step() >= 1)
            connections += flood(cluster.listen, b"\x16")
            check_reserve(cluster.coordinator)
            cluster.finish()
            assert not cluster.run.events("worker_lost"), cluster.run.events("worker_lost")
            for connection in connections:
                connection.close()


main()
