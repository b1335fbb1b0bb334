"""A coordinator that listens at all addresses names none of them that nobody can reach: not in job.json, not to
Prometheus, not on its first line. Who asks is told the address by which it asked.
"""
import json
import os
import re
import signal
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, Run, Scratch, get, heddle, wait_for  # noqa: E402
from harness.served import ALONE, Cluster, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402


def first_target(address, path="/sd", headers=()):
    request = urllib.request.Request(f"http://{address}{path}", headers=dict(headers))
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.loads(reply.read())[0]["targets"]


def serve(cluster, folder, *options):
    """Starts the coordinator. Returns its job.json."""
    path = os.path.join(cluster.store, "job.json")
    cluster.coordinator = cluster.start(HEDDLE, "serve", "--store", cluster.store, "--output-root", folder, *options)
    wait_for("the coordinator's address", lambda: os.path.exists(path) or cluster.coordinator.poll() is not None)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def serves_everywhere(folder):
    with Cluster(folder, "everywhere") as cluster:
        job = serve(cluster, folder, "--listen", "0.0.0.0:0", "--metrics", "0.0.0.0:0", "--insecure")
        for what in ("coordinator", "metrics"):
            assert "0.0.0.0" not in job[what], job
        # They lead there.
        assert "heddle_build_info" in get(job["metrics"])
        done = heddle("status", "--coordinator", job["coordinator"], "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["phase"] == "idle", done
        assert "0.0.0.0" not in cluster.errors(), cluster.errors()
        port = job["metrics"].rsplit(":", 1)[1]
        assert first_target(job["metrics"]) == [job["metrics"]]
        assert first_target(f"127.0.0.1:{port}") == [f"127.0.0.1:{port}"]
        assert first_target(f"localhost:{port}") == [f"localhost:{port}"]
        named = first_target(f"127.0.0.1:{port}", headers=[("Host", "lab.example:9400")])
        assert named == ["lab.example:9400"], named  # Through a proxy or a forwarded port.
        assert first_target(f"127.0.0.1:{port}", headers=[("Host", "<script>")]) == [job["metrics"]]


def serves_at_one_address(folder):
    """That is the one, whatever the asker calls it."""
    with Cluster(folder, "there") as cluster:
        cluster.serve()
        with open(os.path.join(cluster.store, "job.json"), encoding="utf-8") as file:
            metrics = json.load(file)["metrics"]
        assert metrics.startswith("127.0.0.1:"), metrics
        assert first_target(metrics, headers=[("Host", "lab.example:1")]) == [metrics]


def serves_metrics_at_ipv6(folder):
    with Cluster(folder, "six") as cluster:
        metrics = serve(cluster, folder, "--listen", "127.0.0.1:0", "--metrics", "[::1]:0")["metrics"]
        assert metrics.startswith("[::1]:"), metrics
        assert "heddle_build_info" in get(metrics)


def trains_everywhere(folder):
    run = Run(os.path.join(folder, "train"), write_job(folder, prose(folder), 100_000), [ALONE])
    run.command += ["--listen", "0.0.0.0:0", "--insecure"]
    run.start()
    run.wait_step(1)
    job = run.job()
    done = heddle("status", "--coordinator", job["coordinator"], "--json")
    run.process.send_signal(signal.SIGINT)
    run.wait()
    assert not re.search(r"\b0\.0\.0\.0:\d", json.dumps(job) + run.errors()), (job, run.errors())
    assert done.returncode == 0 and json.loads(done.stdout)["phase"] == "training", done


def main():
    with Scratch() as folder:
        serves_everywhere(folder)
        serves_at_one_address(folder)
        serves_metrics_at_ipv6(folder)
        trains_everywhere(folder)


main()
