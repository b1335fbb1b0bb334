"""Links measured by pair in a job: what no end can see alone. Three workers in three network namespaces; the two ways
between `a` and `b` are slow, all others fast. And a job whose list names a transport first that is measurably dearer
than another: loopback behind a token bucket. Exit 77: not root, or no namespaces here.
"""
import json
import os
import sys

from harness import HEDDLE, SMOKE, Run, Scratch, get, heddle
from harness.served import WORKERS, Cluster, write_job
from harness.text_data import prose
import namespaces  # pylint: disable=wrong-import-order,import-error  # harness knows its folder.

SUBNET = namespaces.subnet(64)
GATE = SUBNET + ".254"
SLOW = 2.5e6  # Bytes a second.
BUCKET = ["tbf", "rate", "20mbit", "burst", "32kb", "latency", "50ms"]


def slow_between(network, one, other):
    """A route of their own between two places, behind a token bucket in each direction."""
    names = [f"hi{namespaces.TAG}{place}" for place in (one, other)]
    namespaces.command("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
    for place, name in ((one, names[0]), (other, names[1])):
        namespaces.command("ip", "link", "set", name, "netns", namespaces.space(place))
    for place, name, target in ((one, names[0], other), (other, names[1], one)):
        inside = namespaces.within(place)
        namespaces.command(*inside, "ip", "link", "set", name, "up")
        namespaces.command(*inside, "ip", "route", "add", network.address(target) + "/32", "dev", name,
                           "src", network.address(place))
        namespaces.command(*inside, "tc", "qdisc", "add", "dev", name, "root", *BUCKET)


def samples(address, name):
    """The exposition's lines of a metric."""
    return [line for line in get(address).splitlines() if line.startswith(name + "{")]


def check_slow_pair(folder, network):
    job = write_job(folder, prose(folder), 30)
    with Cluster(folder, "slow-pair", GATE + ":0") as cluster:
        cluster.serve()
        for worker in WORKERS:
            cluster.worker(worker, "--bind", network.address(worker), prefix=namespaces.within(worker))
        cluster.submit(job)
        cluster.wait_step(3)
        measured = {(event["from"], event["to"]): event for event in cluster.run.events("links_measured")}
        assert {tuple(sorted(pair)) for pair in measured} == {("a", "b"), ("a", "c"), ("b", "c")}, measured
        slow, fast = [], []
        for pair, event in measured.items():
            assert event["result"] == "ok" and set(event["transports"]) == {"tcp"}, event
            rates = slow if set(pair) == {"a", "b"} else fast
            rates += [event["transports"]["tcp"][direction] for direction in ("there", "back")]
        # A bucket lets the first bytes through at once, so that a short measurement sees more than its rate.
        assert max(slow) < 4 * SLOW and max(slow) < min(fast), measured
        # Nothing was measured twice, and the plan was made with it: no end alone would have said "tcp", because all
        # share one kernel.
        assert len(measured) == len(cluster.run.events("links_measured"))
        plan = cluster.run.events("plan")[0]["plan"]
        for i, row in enumerate(plan["transports"]):
            assert all(name == ("" if i == j else "tcp") for j, name in enumerate(row)), plan["transports"]
        counted = samples(cluster.run.job()["metrics"], "heddle_links_measured_total")
        assert counted == ['heddle_links_measured_total{result="ok"} 3'], counted
        status = {worker["name"]: worker for worker in cluster.status()["workers"]}
        joined = [line for line in samples(status["a"]["metrics_address"], "heddle_comm_pair_transport")
                  if not line.endswith(" 0")]
        assert joined and all('reason="cheapest"' in line and 'transport="tcp"' in line for line in joined), joined
        before = len(cluster.run.events("links_measured"))
        cluster.kill("c")
        cluster.worker("c", "--bind", network.address("c"), prefix=namespaces.within("c"))
        cluster.finish(240)
        # It came back to its address: what was measured of it still holds.
        assert len(cluster.run.events("links_measured")) == before
        print({"-".join(pair): event["transports"]["tcp"] for pair, event in measured.items()}, flush=True)


def check_choice(folder, network):
    """The first of the list is behind a bucket: the cheapest is another, unless the job wants the first."""
    place = network.places[0]
    namespaces.command(*namespaces.within(place), "ip", "link", "set", "lo", "mtu", "1500")
    namespaces.command(*namespaces.within(place), "tc", "qdisc", "add", "dev", "lo", "root", *BUCKET)
    for choose, transport in (("cheapest", "shm"), ("first", "tcp")):
        run = Run(os.path.join(folder, choose), SMOKE, (
            "steps=2", "optimizer.warmup_steps=1", "comm.transports=[tcp,shm]", f"comm.choose={choose}",
            "checkpoint.last=false"))
        run.command = [*namespaces.within(place), *run.command]
        run.start().finish(240)
        [measured] = run.events("links_measured")
        assert measured["result"] == "ok" and set(measured["transports"]) == {"tcp", "shm"}, measured
        assert measured["transports"]["tcp"]["there"] < 4 * SLOW, measured
        plan = run.events("plan")[0]["plan"]
        used = {name for row in plan["transports"] for name in row if name}
        # By slow TCP alone one worker may do it all.
        assert used == {transport} or (choose == "first" and not used), (choose, used)
    shown = json.loads(namespaces.command(
        *namespaces.within(place), HEDDLE, "links", SMOKE, "--json", "--set", "comm.transports=[tcp,shm]"))
    for pair in shown["pairs"]:
        assert pair["transport"] == "shm" and pair["reason"].startswith("cheapest: "), pair


def check_bad_key():
    refused = heddle("links", SMOKE, "--set", "comm.choose=fastest")
    assert refused.returncode == 2 and "comm.choose" in refused.stderr and "cheapest" in refused.stderr, refused
    refused = heddle("links", SMOKE, "--set", "comm.chose=first")
    assert refused.returncode == 2 and "choose" in refused.stderr, refused


def main():
    check_bad_key()
    if os.geteuid() != 0:
        print("SKIPPED: network namespaces need root", file=sys.stderr)
        sys.exit(77)
    try:
        network = namespaces.Bridged(WORKERS, SUBNET, GATE)
    except OSError as error:
        print(f"SKIPPED: no network namespaces here: {error}", file=sys.stderr)
        sys.exit(77)
    with network, Scratch() as folder:
        slow_between(network, "a", "b")
        check_slow_pair(folder, network)
        check_choice(folder, network)


main()
