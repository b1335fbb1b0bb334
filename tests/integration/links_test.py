"""`heddle links`: this machine's networks, and the measured links of a job's workers."""
import json
import re

from harness import SMOKE, heddle


def check_machine():
    done = heddle("links", "--json")
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)
    loopback = [i for i in machine["interfaces"] if i["kind"] == "loopback"]
    assert loopback and not any(i["usable"] or i["chosen"] for i in loopback), machine["interfaces"]
    assert sum(i["chosen"] for i in machine["interfaces"]) <= 1, machine["interfaces"]
    assert all(i["reason"] for i in machine["interfaces"]), machine["interfaces"]
    table = heddle("links")
    assert table.returncode == 0 and all(i["name"] in table.stdout for i in machine["interfaces"]), table


def check_job():
    # By the list: what is cheapest on a busy machine is chance.
    done = heddle("links", SMOKE, "--json", "--set", "comm.choose=first")
    assert done.returncode == 0, done.stderr
    links = json.loads(done.stdout)
    assert links["workers"] == list("abcd"), links["workers"]
    assert [(p["from"], p["to"]) for p in links["pairs"]] == [
        ("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")], links["pairs"]
    for pair in links["pairs"]:
        assert pair["transport"] == "shm" and pair["there"]["bytes_per_second"] > 0, pair
        assert [(trial["transport"], trial["works"]) for trial in pair["trials"]] == [
            ("shm", True), ("verbs", False), ("tcp", True)], pair
        assert re.search(r"verbs \(.*(loopback|built without)", pair["trials"][1]["reason"]), pair
    assert sorted(worker for island in links["islands"] for worker in island) == list("abcd"), links["islands"]


def check_choice():
    done = heddle("links", SMOKE, "--json", "--set", "comm.transports=[tcp]")
    assert done.returncode == 0, done.stderr
    assert {pair["transport"] for pair in json.loads(done.stdout)["pairs"]} == {"tcp"}, done.stdout
    done = heddle("links", SMOKE, "--json", "--set", "comm.tls=true",
                  "--set", "comm.choose=first")
    assert done.returncode == 0, done.stderr
    encrypted = json.loads(done.stdout)
    assert encrypted["tls"] is True, encrypted
    for pair in encrypted["pairs"]:
        assert pair["transport"] == "shm" and pair["trials"][2]["works"], pair
    refused = heddle("links", SMOKE, "--set", "comm.transports=[pigeon]")
    assert refused.returncode == 2 and "comm.transports: 'pigeon' is no transport" in refused.stderr, refused
    refused = heddle("links", SMOKE, "--bind", "eth.invalid")
    assert refused.returncode == 2 and "neither an address nor an interface" in refused.stderr, refused
    refused = heddle("links", SMOKE, "--bind", "192.0.2.1")
    assert refused.returncode == 2 and "192.0.2.1" in refused.stderr, refused


check_machine()
check_job()
check_choice()
