"""What passes between machines, read by somebody on the way: with certificates and `comm.tls` there is neither a
weight, nor the job's secret, nor a text of the control connection in it; without them the same capture has the weights
and the texts, so that the test sees what it looks for. The learning rate is too small to change a weight: every move of
state carries the same bytes. All of it in a network namespace of its own, without the packets of others. Exit 77: not
root, or none here.
"""
import json
import os
import random
import socket
import sqlite3
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, heddle, seed, wait_for  # noqa: E402
from harness.served import Cluster, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
ALL_PROTOCOLS, PACKET_LEVEL, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING, RECEIVE_BUFFER_FORCED = 3, 263, 6, 23, 33
BUFFER_BYTES = (1 << 30) - 1  # The most that the kernel takes.
NEEDLE_BYTES, NEEDLES_A_TENSOR = 32, 2
PASS_PHRASE = "a name that nobody else gives to a job"


class Capture:
    """Every packet of the loopback interface, from `with` to its end."""

    def __init__(self):
        self.packets, self.ended = [], False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self.socket.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCED, BUFFER_BYTES)
        self.socket.setsockopt(PACKET_LEVEL, PACKET_IGNORE_OUTGOING, 1)  # Each comes twice.
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.1)
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.ended = True
        self.thread.join(30)
        _, dropped = struct.unpack("II", self.socket.getsockopt(PACKET_LEVEL, PACKET_STATISTICS, 8))
        self.socket.close()
        assert kind is not None or dropped == 0, f"{dropped} packets were not seen"

    def _read(self):
        while not self.ended:
            try:
                self.packets.append(self.socket.recv(1 << 17))
            except TimeoutError:
                continue

    def found(self, needles):
        """Those that are in a packet."""
        text = b"\0".join(self.packets)
        return {name for name, needle in needles.items() if needle in text}


def weights(cluster, folder, chance):
    """Pieces of tensors, by tensor and place: what a move of state has to carry."""
    root = os.path.join(cluster.run.folder, "checkpoints")
    out = os.path.join(folder, "model-" + os.path.basename(cluster.run.folder))
    saved = os.path.join(root, max(name for name in os.listdir(root) if not name.startswith(".")))
    done = heddle("checkpoint", "convert", saved, out, "--to", "safetensors")
    assert done.returncode == 0, done
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    needles = {}
    for name, tensor in json.loads(content[8:8 + size]).items():
        if name == "__metadata__" or len(tensor["shape"]) < 2:
            continue  # Norms are all ones.
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        for _ in range(NEEDLES_A_TENSOR):
            at = begin + 4 * chance.randrange((end - begin - NEEDLE_BYTES) // 4)
            needles[f"{name} at {at}"] = content[at:at + NEEDLE_BYTES]
    return needles


def secrets(cluster):
    with sqlite3.connect(f"file:{cluster.store}/coordinator.sqlite?mode=ro", uri=True) as store:
        [state] = store.execute("SELECT state FROM coordinator").fetchone()
    secret = json.loads(state)["secret"]
    return {"the secret": bytes.fromhex(secret), "the secret as text": secret.encode()} if secret else {}


def captured(folder, job, chance, name, lab):
    """(what was found, what was looked for) while a worker joins and another one leaves."""
    with Capture() as capture, Cluster(folder, name, lab=lab) as cluster:
        cluster.serve()
        cluster.submit(job, f"name={PASS_PHRASE}", f"seed={chance.randrange(1, 2**31)}", "checkpoint.every=2",
                       "optimizer.learning_rate=1e-30", "comm.transports=[tcp]",
                       f"comm.tls={'true' if lab else 'false'}")
        for worker in "ab":
            cluster.worker(worker)
        wait_for("a checkpoint", lambda: cluster.run.events("checkpoint"))
        cluster.worker("c")
        wait_for("c to take part", lambda: "c" in cluster.run.events("plan")[-1]["plan"]["workers"])
        cluster.wait_step(cluster.run.step() + 3)
        done = heddle("drain", "a", "--coordinator", cluster.listen, *cluster.certs("operator"))
        assert done.returncode == 0, done
        assert cluster.workers.pop("a").wait(60) == 0, cluster.errors()
        assert cluster.run.events("state_moved"), "no state was moved"
        needles = {**weights(cluster, folder, chance), **secrets(cluster), "the job's name": PASS_PHRASE.encode()}
    return capture.found(needles), set(needles)


def enter_own_network():
    """Begins again in a network namespace of this test's own."""
    if os.environ.get("HEDDLE_TEST_OWN_NETWORK"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode != 0:
        print("SKIPPED: a network namespace needs root", file=sys.stderr)
        sys.exit(77)
    os.environ["HEDDLE_TEST_OWN_NETWORK"] = "1"
    os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])


def main():
    enter_own_network()
    chance = random.Random(seed())
    with Scratch() as folder:
        job, lab = write_job(folder, prose(folder), STEPS), os.path.join(folder, "lab")
        made = heddle("certs", "init", lab, *(word for name in "abc" for word in ("--worker", name)))
        assert made.returncode == 0, made
        found, looked_for = captured(folder, job, chance, "open", None)
        print(f"open: {len(found)} of {len(looked_for)} were read", flush=True)
        assert "the job's name" in found and len(found) > len(looked_for) / 4, f"the capture sees too little: {found}"
        found, looked_for = captured(folder, job, chance, "guarded", lab)
        assert "the secret" in looked_for
        assert not found, f"in clear: {found}"
        print(f"guarded: none of {len(looked_for)} was read", flush=True)


main()
