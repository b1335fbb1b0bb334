"""Real etcd processes of a test, and coordinators that take turns over a store in them."""
import base64
import json
import os
import signal
import subprocess

from harness import HEDDLE, PATIENCE, heddle, processes, wait_for
from harness.served import Cluster
from ports import held_port


class Etcd:
    """Members on ports of their own, each with its own data folder; they end with the `with`."""

    def __init__(self, folder, members=1):
        self.folder = os.path.join(folder, "etcd")
        os.mkdir(self.folder)
        self.clients = [f"127.0.0.1:{held_port()}" for _ in range(members)]
        self.peers = [f"http://127.0.0.1:{held_port()}" for _ in range(members)]
        self.processes = [None] * members

    def __enter__(self):
        for member in range(len(self.clients)):
            self.start(member)
        wait_for("etcd", self.answers)
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
            self.processes[member].wait(60)

    def leader(self):
        """The number of the member that leads etcd."""
        for status in json.loads(self.ctl("endpoint", "status", "-w", "json").stdout):
            if status["Status"]["header"]["member_id"] == status["Status"]["leader"]:
                return self.clients.index(status["Endpoint"])
        raise AssertionError("no member leads")

    def ctl(self, *words):
        return subprocess.run(["etcdctl", "--endpoints", ",".join(self.clients), *words], capture_output=True,
                              text=True, check=False, timeout=PATIENCE, env=dict(os.environ, ETCDCTL_API="3"))

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
        self.addresses = [f"127.0.0.1:{held_port()}" for _ in range(count)]
        self.listen = ",".join(self.addresses)
        self.coordinators = [None] * count

    def __exit__(self, *problem):
        for process in self.coordinators:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(60)
        super().__exit__(*problem)

    def serve(self, number=0):
        """Starts one of them, and waits until it answers."""
        self.coordinators[number] = self.start(HEDDLE, "serve", "--store", self.store, "--listen",
                                               self.addresses[number], *self.certs("coordinator"), "--output-root",
                                               self.folder)
        wait_for("the coordinator's answer", lambda: self.own_status(number)
                 or self.coordinators[number].poll() is not None)
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

    def wait_leader(self):
        """The number of the one that leads."""
        everybody = range(len(self.addresses))
        return wait_for("a leader", lambda: [number for number in everybody if self.leads(number)])[0]

    def term(self):
        """The revision in which the leader's key came to be, and its number; (0, None): there is none."""
        found = json.loads(self.etcd.ctl("get", self.prefix + "/leader", "-w", "json").stdout).get("kvs", [])
        if not found:
            return 0, None
        leader = json.loads(base64.b64decode(found[0]["value"]))["address"]
        return found[0]["create_revision"], self.addresses.index(leader)

    def end(self, number):
        self.coordinators[number].send_signal(signal.SIGTERM)
        assert self.coordinators[number].wait(60) == 0, self.errors()
