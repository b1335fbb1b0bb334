"""Who coordinates the job: one process with its store in a file, or two that take turns with theirs in etcd."""
import json
import os
import socket

from harness import HEDDLE, heddle, wait_for
from harness.etcd import Etcd

LEASE = 3  # Seconds, of the leader's key in etcd.


class Alone:
    """With a store in a file system of its own."""

    names = ["coordinator"]

    def __init__(self, gate, disk):
        self.gate, self.listen = gate, gate + ":0"
        self.store = os.path.join(disk, "store")

    def open(self):
        pass

    def close(self):
        pass

    def command(self, _name, listen=None):
        return [HEDDLE, "serve", "--store", self.store, "--listen", listen or self.listen, "--insecure"]

    def before(self, _name):
        path = os.path.join(self.store, "job.json")
        if os.path.exists(path):
            os.remove(path)

    def await_answer(self, _name, process):
        path = os.path.join(self.store, "job.json")
        wait_for("the coordinator's address", lambda: os.path.exists(path) or process.poll() is not None, 60)
        if process.poll() is None:
            with open(path, encoding="utf-8") as file:
                self.listen = json.load(file)["coordinator"]

    def addresses(self):
        return [self.listen]

    def leader(self):
        return self.names[0]


class Turns:
    """Each name is one of the coordinators. etcd itself meets no fault here (integration.serve.etcd_outage)."""

    names = ["coordinator-1", "coordinator-2"]

    def __init__(self, gate, folder):
        with socket.socket() as first, socket.socket() as second:
            for probe in (first, second):
                probe.bind((gate, 0))
            self.listens = dict(zip(self.names, (f"{gate}:{probe.getsockname()[1]}" for probe in (first, second))))
        self.listen = ",".join(self.listens.values())
        self.etcd = Etcd(folder)

    def open(self):
        self.etcd.__enter__()

    def close(self):
        self.etcd.__exit__()

    def command(self, name, listen=None):
        store = f"etcd://{','.join(self.etcd.clients)}/heddle/chaos?lease={LEASE}"
        return [HEDDLE, "serve", "--store", store, "--listen", listen or self.listens[name], "--insecure"]

    def before(self, name):
        pass

    def await_answer(self, name, process):
        wait_for(f"the answer of {name}", lambda: self.phase(name) or process.poll() is not None, 60)

    def addresses(self):
        return list(self.listens.values())

    def phase(self, name):
        """What it says of itself; None: nothing."""
        done = heddle("status", "--coordinator", self.listens[name], "--json")
        return json.loads(done.stdout)["phase"] if done.returncode == 0 else None

    def leader(self):
        """None while nobody leads."""
        said = self.etcd.ctl("get", "/heddle/chaos/leader", "--print-value-only").stdout.strip()
        address = json.loads(said)["address"] if said else None
        return next((name for name, listen in self.listens.items() if listen == address), None)
