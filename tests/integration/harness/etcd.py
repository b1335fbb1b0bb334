"""Real etcd processes of a test, and coordinators that take turns over a store in them."""
import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time

from harness import HEDDLE, heddle, processes, wait_for
from harness.served import Cluster
from pauses import Pauses

SERVES_WITHIN = 5  # Seconds from a leader's loss to the next one's service: what the guide says.


class Stopwatch:
    """Seconds without those in which the machine stood still."""

    def __init__(self):
        self.pauses = Pauses()
        self.begun = time.monotonic()

    def begin(self):
        self.begun = time.monotonic()

    def seconds(self):
        now = time.monotonic()
        return now - self.begun - self.pauses.within(self.begun, now)

    def check(self, limit, what):
        took = self.seconds()
        print(f"{what} after {took:.1f} s", flush=True)
        assert took < limit * float(os.environ.get("HEDDLE_TEST_SLOWDOWN", "1")), f"{what} after {took:.1f} s"


def free_ports(count):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class Etcd:
    """Members on free ports, each with its own data folder; they end with the `with`."""

    def __init__(self, folder, members=1):
        self.folder = os.path.join(folder, "etcd")
        os.mkdir(self.folder)
        ports = free_ports(2 * members)
        self.clients = [f"127.0.0.1:{port}" for port in ports[:members]]
        self.peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        self.processes = [None] * members

    def __enter__(self):
        for member in range(len(self.clients)):
            self.start(member)
        wait_for("etcd", self.answers, 60)
        return self

    def __exit__(self, *_):
        for member in range(len(self.clients)):
            self.kill(member)

    def start(self, member):
        """Again, too, with what it knew."""
        client, peer = self.clients[member], self.peers[member]
        everybody = ",".join(f"m{i}={other}" for i, other in enumerate(self.peers))
        with open(os.path.join(self.folder, f"m{member}.log"), "ab") as log:
            self.processes[member] = subprocess.Popen(
                ["etcd", "--name", f"m{member}", "--data-dir", os.path.join(self.folder, f"m{member}"),
                 "--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", everybody, "--logger", "zap", "--log-level", "error"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=processes.tied())

    def kill(self, member):
        if self.processes[member] is not None:
            self.processes[member].kill()
            self.processes[member].wait(30)

    def leader(self):
        """The number of the member that leads etcd."""
        for status in json.loads(self.ctl("endpoint", "status", "-w", "json").stdout):
            if status["Status"]["header"]["member_id"] == status["Status"]["leader"]:
                return self.clients.index(status["Endpoint"])
        raise AssertionError("no member leads")

    def ctl(self, *words):
        return subprocess.run(["etcdctl", "--endpoints", ",".join(self.clients), *words], capture_output=True,
                              text=True, check=False, timeout=30, env=dict(os.environ, ETCDCTL_API="3"))

    def answers(self):
        return self.ctl("get", "anything").returncode == 0

    def signal(self, members, number):
        for member in members:
            self.processes[member].send_signal(number)


class Coordinators(Cluster):
    """Several `heddle serve` with one store in etcd, and workers that know all of them."""

    def __init__(self, folder, name, etcd, lab=None, count=2, lease=3):
        super().__init__(folder, name, lab=lab)
        self.etcd = etcd
        self.prefix = f"/heddle/{name}"
        self.store = f"etcd://{','.join(etcd.clients)}{self.prefix}?lease={lease}"
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self.listen = ",".join(self.addresses)
        self.coordinators = [None] * count

    def __exit__(self, *problem):
        for process in self.coordinators:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(30)
        super().__exit__(*problem)

    def serve(self, number=0):
        """Starts one of them, and waits until it answers."""
        self.coordinators[number] = self.start(HEDDLE, "serve", "--store", self.store, "--listen",
                                               self.addresses[number], *self.certs("coordinator"), "--output-root",
                                               self.folder)
        wait_for("the coordinator's answer", lambda: self.own_status(number)
                 or self.coordinators[number].poll() is not None, 60)
        assert self.coordinators[number].poll() is None, self.errors()

    def own_status(self, number):
        """What this one says of itself; None: nothing."""
        done = heddle("status", "--coordinator", self.addresses[number], "--json", *self.certs("viewer"))
        return json.loads(done.stdout) if done.returncode == 0 else None

    def leads(self, number):
        status = self.own_status(number)
        return status is not None and status["phase"] != "standby"

    def stands_by(self, number):
        status = self.own_status(number)
        return status is not None and status["phase"] == "standby"

    def wait_leader(self, timeout=60):
        """The number of the one that leads."""
        everybody = range(len(self.addresses))
        return wait_for("a leader", lambda: [number for number in everybody if self.leads(number)], timeout)[0]

    def term(self):
        """The revision in which the leader's key came to be, and its number; (0, None): there is none."""
        found = json.loads(self.etcd.ctl("get", self.prefix + "/leader", "-w", "json").stdout).get("kvs", [])
        if not found:
            return 0, None
        leader = json.loads(base64.b64decode(found[0]["value"]))["address"]
        return found[0]["create_revision"], self.addresses.index(leader)

    def end(self, number):
        self.coordinators[number].send_signal(signal.SIGTERM)
        assert self.coordinators[number].wait(30) == 0, self.errors()
