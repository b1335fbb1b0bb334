"""The coordinator's name leads elsewhere for a while: to another job's coordinator, to one without a job, and to
nobody. The workers train on, say so, and come back when it leads right again: none of them is lost or started again,
and the other job does not notice. Exit 77: not root, or no mount namespaces here.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, Scratch, check_same, check_samples, trained, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, PATIENT, WORKERS, Cluster, losses_until, write_job  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
NAME = "coordinator.heddle.test"


class Hosts:
    """/etc/hosts as the workers have it, in a mount namespace each."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "hosts")
        with open("/etc/hosts", encoding="utf-8") as file:
            self.others = file.read()
        self.lead_to("127.0.0.1")

    def lead_to(self, address):
        """None: nowhere. In its place, for the mounted one is this very file."""
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(self.others + (f"\n{address} {NAME}\n" if address else "\n"))

    def prefix(self):
        return ("unshare", "--mount", "sh", "-c", f'mount --bind "{self.path}" /etc/hosts && exec "$@"', "sh")


def go_on(cluster, steps, what):
    """Training does, seen by the workers' own metrics."""
    before = trained(cluster.metrics)
    wait_for(f"{steps} steps {what}", lambda: trained(cluster.metrics) >= before + steps)


def lead_away(cluster, hosts, address, says):
    said = cluster.errors().count(says)
    hosts.lead_to(address)
    cluster.coordinator.kill()
    cluster.coordinator.wait(60)
    wait_for(f"a worker to say '{says}'", lambda: cluster.errors().count(says) > said)
    go_on(cluster, 5, f"with the name at {address}")
    lines = cluster.errors().count(says) - said
    assert lines <= 2 * len(WORKERS), f"{lines} lines of {len(WORKERS)} workers: {cluster.errors()}"


def lead_back(cluster, hosts, pids):
    hosts.lead_to("127.0.0.1")
    cluster.serve()
    wait_for("all workers", lambda: all(worker["standing"] == "training" for worker in cluster.status()["workers"])
             and len(cluster.status()["workers"]) == len(WORKERS))
    cluster.check_alive(pids)


def run(folder, job, hosts):
    with Cluster(folder, "right") as cluster:
        cluster.serve()
        port = cluster.listen.rsplit(":", 1)[1]
        with Cluster(folder, "wrong", f"127.0.0.2:{port}") as wrong, \
                Cluster(folder, "idle", f"127.0.0.3:{port}") as idle:
            for name in WORKERS:
                cluster.workers[name] = cluster.start(*hosts.prefix(), HEDDLE, "worker", "--coordinator",
                                                      f"{NAME}:{port}", "--name", name)
            cluster.submit(job, PATIENT, "elastic.drift=observe")
            wrong.serve()
            idle.serve()
            wrong.submit(job, "seed=9", "workers=[{name: a, emulate: {speed: 0.02}}]")
            wrong.worker("a")
            wrong.wait_step(1)
            cluster.wait_step(3)
            pids = cluster.run.pids()
            cluster.metrics = [worker["metrics_address"] for worker in cluster.status()["workers"]]
            for address, says in (("127.0.0.2", "its coordinator's name leads elsewhere"),
                                  ("127.0.0.3", "there is no job here"), (None, "is not reached")):
                lead_away(cluster, hosts, address, says)
                lead_back(cluster, hosts, pids)
            assert wrong.run.events("worker_lost") == []
            assert [event["worker"] for event in wrong.run.events("worker_joined")] == ["a"]
            assert not idle.status().get("workers"), idle.status()
            assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")
            assert len({event["generation"] for event in cluster.run.events("plan")}) == 1
    last = cluster.run.step()
    check_same(cluster.run, losses_until(folder, job, last), last)
    check_samples(cluster.run, last, GLOBAL_BATCH)


def main():
    with Scratch() as folder:
        hosts = Hosts(folder)
        if os.geteuid() != 0 or subprocess.run([*hosts.prefix(), "true"], check=False).returncode != 0:
            print("SKIPPED: a mount namespace needs root", file=sys.stderr)
            sys.exit(77)
        job = write_job(folder, prose(folder), STEPS)
        run(folder, job, hosts)


main()
