"""`heddle links` in a guest of scripts/rdma-vm: the RDMA port it finds, and what pairs of workers get from it."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import SMOKE, heddle  # noqa: E402

ADDRESS = os.environ["HEDDLE_ADDRESS"]
DEVICE = os.environ["HEDDLE_TEST_RDMA"]


def check_machine():
    done = heddle("links", "--json")
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)
    assert len(machine["rdma"]) == 1, machine["rdma"]
    port = machine["rdma"][0]
    assert port["device"] == DEVICE and port["usable"] and port["chosen"] and port["reason"], port
    assert port["kind"] == ("iwarp" if DEVICE.startswith("siw") else "roce"), port
    assert (port["net_device"], port["address"]) == ("eth0", ADDRESS), port
    assert [i["name"] for i in machine["interfaces"] if i["chosen"]] == ["eth0"], machine["interfaces"]


def check_pairs():
    """At the port's address each pair can have all three; the list decides, not what software RDMA costs."""
    two = ["--set", "workers=[{name: a}, {name: b}]", "--bind", ADDRESS, "--set", "comm.choose=first"]
    for transports, chosen in ("[shm, verbs, tcp]", "shm"), ("[verbs, tcp]", "verbs"):
        done = heddle("links", SMOKE, "--json", *two, "--set", f"comm.transports={transports}", timeout=120)
        assert done.returncode == 0, done.stderr
        pair, = json.loads(done.stdout)["pairs"]
        assert all(trial["works"] for trial in pair["trials"]), pair
        assert [trial.get("ports") for trial in pair["trials"] if trial["transport"] == "verbs"] == [
            f"{DEVICE}/1 to {DEVICE}/1"], pair
        assert pair["transport"] == chosen and pair["there"]["bytes_per_second"] > 1e6, pair
        print(f"{transports}: {pair['transport']}, {pair['reason']}", flush=True)


def check_encrypted():
    """RDMA is not encrypted: a job that asks for TLS goes without."""
    done = heddle("links", SMOKE, "--json", "--set", "workers=[{name: a}, {name: b}]", "--bind", ADDRESS,
                  "--set", "comm={transports: [verbs, tcp], tls: true}", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "verbs is not used: comm.tls is on" in done.stderr, done.stderr
    pair, = json.loads(done.stdout)["pairs"]
    verbs, = (trial for trial in pair["trials"] if trial["transport"] == "verbs")
    assert pair["transport"] == "tcp" and "verbs (not encrypted, and comm.tls is on)" in verbs["reason"], pair


check_machine()
check_pairs()
check_encrypted()
