"""What whoever reaches the coordinator's port can do to it while a job trains: connections that come and go, thousands
that trickle, messages of which half comes, calls with any bytes. The coordinator keeps to its memory, answers
afterwards, and the job does not notice. First without certificates; then calls of one who may only look.

HEDDLE_STRANGERS multiplies what the tier does (scripts/acceptance: 100,000 connections, ten million calls).
"""
import os
import random
import re
import resource
import socket
import ssl
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, REPOSITORY, Scratch, check_same, heddle, seed  # noqa: E402
from harness.http2 import PREFACE, Http2, Http2Error, message  # noqa: E402
from harness.served import WORKERS, Cluster, losses_until, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
TIMES = int(os.environ.get("HEDDLE_STRANGERS", "0")) or 1
CONNECTIONS, TRICKLING, CALLS = 1000 * TIMES, min(100 * TIMES, 10_000), 100_000 * TIMES
HALF_SENT, HALF_SENT_BYTES = 200, 64 << 20
MEMORY_MAX, LOG_MAX = 500 << 20, 256 << 10


def methods():
    with open(os.path.join(REPOSITORY, "elastic/grpc/control.proto"), encoding="utf-8") as file:
        text = file.read()
    package = re.search(r"^package (\S+);", text, re.MULTILINE)[1]
    return [f"/{package}.Control/{name}" for name in re.findall(r"^  rpc (\w+)\(", text, re.MULTILINE)]


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def random_message(chance, depth=0):
    """Bytes like those of a protocol buffer: fields of low numbers, nested, with values that are rarely sensible."""
    out = b""
    for _ in range(chance.randrange(0, 6)):
        field, kind = chance.randrange(1, 20), chance.choice([0, 1, 2, 2, 2, 5])
        out += varint(field << 3 | kind)
        if kind == 0:
            out += varint(chance.choice([0, 1, chance.getrandbits(7), chance.getrandbits(31), chance.getrandbits(64)]))
        elif kind == 2:
            inner = random_message(chance, depth + 1) if depth < 4 and chance.random() < 0.5 \
                else chance.randbytes(chance.choice([0, 1, 8, 16, 32, 100]))
            out += varint(len(inner)) + inner
        else:
            out += chance.randbytes(8 if kind == 1 else 4)
    if chance.random() < 0.1:
        out = out[:chance.randrange(0, len(out) + 1)]  # Cut short.
    return out[:400]


def memory(process):
    """The most that the process has held, in bytes."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def come_and_go(address, chance):
    """Connections one after the other, of which some say something."""
    for _ in range(CONNECTIONS):
        try:
            with connect(address) as connection:
                connection.send(chance.choice([b"", b"\x16", PREFACE[:chance.randrange(1, len(PREFACE))],
                                               b"GET / HTTP/1.1\r\n\r\n", PREFACE]))
        except OSError:
            pass  # It has gone.
    return f"{CONNECTIONS} connections came and went"


def trickle(address, chance):
    """Many at once, each of which says a byte a second; those that are closed come again."""
    begun, connections = time.monotonic(), []
    while time.monotonic() < begun + 10:
        while len(connections) < TRICKLING:
            try:
                connections.append([connect(address), 0])
            except OSError:
                break
        still = []
        for connection, said in connections:
            try:
                connection.send((PREFACE + bytes(100))[said:said + 1])
                still.append([connection, said + 1])
            except OSError:
                connection.close()
        connections = still
        time.sleep(chance.uniform(0.5, 1))  # Slow is what they are.
    for connection, _ in connections:
        connection.close()
    return f"{TRICKLING} trickled"


def half_sent(address, chance):
    """Messages of which half comes, as far as the coordinator lets them, and their streams stay open for a while."""
    paths, connections, sent = methods(), [], 0
    chunk = bytes(1 << 20)
    for _ in range(0, HALF_SENT, 10):
        try:
            connection = Http2(address)
            streams = []
            for _ in range(10):
                streams.append(connection.begin(chance.choice(paths)))
                connection.send(streams[-1], message(b"", said=HALF_SENT_BYTES))
            connections.append((connection, streams))
        except (OSError, Http2Error):
            continue
    until = time.monotonic() + 30
    left = {(connection, stream): HALF_SENT_BYTES // 2 for connection, streams in connections for stream in streams}
    while left and time.monotonic() < until:
        for connection, stream in list(left):
            try:
                connection.look()
                got = connection.send(stream, chunk[:left[connection, stream]])
                sent += got
                left[connection, stream] -= got
            except (OSError, Http2Error):
                left.pop((connection, stream))
                continue
            if left[connection, stream] <= 0 or stream not in connection.windows:
                left.pop((connection, stream))
    for connection, _ in connections:
        connection.close()
    return f"{len(connections) * 10} half-sent messages of {HALF_SENT_BYTES >> 20} MiB: {sent >> 20} MiB were taken"


def fuzz(address, chance, wrap=None):
    """Calls of every method with any bytes."""
    paths = [*methods(), "/", "/heddle.elastic.wire.Control/", "/no.such/Method"]
    payloads = [random_message(chance) for _ in range(2000)]
    # Without certificates everybody may revoke a worker whose name it knows: nobody does here.
    payloads = [payload for payload in payloads if not re.search(rb"\x01[abc]", payload)]
    connection, called, refused = None, 0, 0
    while called < CALLS:
        try:
            if connection is None or called % 20_000 == 0:
                connection = Http2(address, wrap)
            connection.calls(chance.choice(paths), [chance.choice(payloads) for _ in range(10)])
        except (OSError, Http2Error):
            connection, refused = None, refused + 1
            assert refused < 100 + CALLS // 1000, "the coordinator does not listen any more"
        called += 10
    return f"{called} calls, {refused} times the connection was closed"


def attack(cluster, chance, kinds, pids):
    """Each kind by itself; the coordinator answers after each."""
    for name, kind in kinds.items():
        before, done = cluster.run.step(), []
        thread = threading.Thread(target=lambda kind=kind, done=done: done.append(kind(cluster.listen, chance)),
                                  daemon=True)
        thread.start()
        thread.join(7200 if TIMES > 1 else 300)
        assert done, f"{name}: no end"
        held = memory(cluster.coordinator)
        assert cluster.status()["phase"] == "training"
        cluster.wait_step(before + 3)
        print(f"{name}: {done[0]}; memory at most {held >> 20} MiB", flush=True)
        assert held <= MEMORY_MAX, f"{held >> 20} MiB"
        said = os.path.getsize(cluster.log_path)
        assert said <= LOG_MAX, f"strangers made {said} bytes of log"
        cluster.check_alive(pids)
    assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")
    assert len({event["generation"] for event in cluster.run.events("plan")}) == 1, "the plan changed"


def served(folder, job, name, lab, kinds, chance):
    with Cluster(folder, name, lab=lab) as cluster:
        cluster.serve()
        cluster.submit(job, "elastic.drift=observe")
        for worker in WORKERS:
            cluster.worker(worker)
        cluster.wait_step(3)
        attack(cluster, chance, kinds, cluster.run.pids())
    return cluster


def main():
    chance = random.Random(seed())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Scratch() as folder:
        job, lab = write_job(folder, prose(folder), STEPS), os.path.join(folder, "lab")
        made = heddle("certs", "init", lab, *(word for name in WORKERS for word in ("--worker", name)))
        assert made.returncode == 0, made
        viewer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        viewer.load_verify_locations(os.path.join(lab, "authority", "certificate.pem"))
        viewer.load_cert_chain(*(os.path.join(lab, "viewer", name) for name in ("certificate.pem", "key.pem")))
        viewer.set_alpn_protocols(["h2"])

        def wrap(connection):
            return viewer.wrap_socket(connection, server_hostname="coordinator.heddle")

        open_kinds = {"connections": come_and_go, "trickling": trickle, "half sent": half_sent, "calls": fuzz}
        clusters = [served(folder, job, "open", None, open_kinds, chance)]
        guarded = {"connections": come_and_go, "trickling": trickle,
                   "a viewer's calls": lambda address, chance: fuzz(address, chance, wrap)}
        clusters.append(served(folder, job, "guarded", lab, guarded, chance))
        last = min(cluster.run.step() for cluster in clusters)
        undisturbed = losses_until(folder, job, last)
        for cluster in clusters:
            check_same(cluster.run, undisturbed, last)


main()
