"""A real Prometheus watches a job: it finds every worker through the coordinator's service discovery, follows a
join and a loss, and is answered while the job recovers. promtool finds nothing to say about what is exposed.
Exit 77: no Prometheus.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

from harness import HEDDLE, REPOSITORY, Run, Scratch, wait_for
from harness.served import write_job
from harness.text_data import prose

ANSWER_SECONDS_MAX = 5.0
CONFIG = """global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: heddle
    http_sd_configs: [{{url: "http://{metrics}/sd", refresh_interval: 1s}}]
"""


def get(url, timeout=ANSWER_SECONDS_MAX):
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return reply.read().decode()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Prometheus:
    def __init__(self, folder, metrics):
        self.address = f"127.0.0.1:{free_port()}"
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(metrics=metrics, rules=os.path.join(REPOSITORY, "metrics", "alerts.yml")))
        self.log = open(os.path.join(folder, "prometheus.log"), "ab")
        self.process = subprocess.Popen(["prometheus", f"--config.file={config}",
                                         f"--web.listen-address={self.address}",
                                         f"--storage.tsdb.path={folder}/prometheus"], stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(30)
        self.log.close()

    def ask(self, path, **arguments):
        try:
            return json.loads(get(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"))["data"]
        except OSError:
            return None

    def up(self):
        """Names of the targets that answer."""
        targets = (self.ask("targets", state="active") or {}).get("activeTargets", [])
        return {target["labels"].get("worker") for target in targets if target["health"] == "up"}

    def targets(self):
        return {t["labels"].get("worker") for t in (self.ask("targets", state="active") or {}).get("activeTargets", [])}

    def query(self, text):
        data = self.ask("query", query=text)
        return {r["metric"].get("worker"): float(r["value"][1]) for r in data["result"]} if data else {}


def addresses(metrics):
    """By name, from service discovery itself."""
    return {group["labels"]["worker"]: group["targets"][0] for group in json.loads(get(f"http://{metrics}/sd"))}


class Scraper(threading.Thread):
    """Scrapes some addresses in turn; every scrape must be answered in time."""

    def __init__(self, names):
        super().__init__(daemon=True)
        self.names, self.ended, self.slowest, self.count, self.failed = names, threading.Event(), 0.0, 0, []

    def run(self):
        while not self.ended.wait(0.02):
            for name, address in self.names.items():
                begun = time.monotonic()
                try:
                    assert "heddle_" in get(f"http://{address}/metrics")
                except (OSError, AssertionError) as error:
                    self.failed.append(f"{name}: {error}")
                self.slowest = max(self.slowest, time.monotonic() - begun)
                self.count += 1


def check_format(name, address):
    done = subprocess.run(["promtool", "check", "metrics"], input=get(f"http://{address}/metrics"), text=True,
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and not (done.stdout + done.stderr).strip(), f"{name}: {done.stdout}{done.stderr}"


def follow(run, prometheus, metrics):
    everyone = {"coordinator", "a", "b", "c"}
    wait_for("all targets", lambda: prometheus.up() == everyone, 90)
    run.wait_step(3)
    found = addresses(metrics)
    for name in ("coordinator", "a"):
        check_format(name, found[name])

    joined = subprocess.Popen([HEDDLE, "worker", "--coordinator", run.job()["coordinator"], "--name", "e",
                               "--emulate", "speed=0.1"], stdout=run.log, stderr=run.log, stdin=subprocess.DEVNULL)
    try:
        wait_for("the joined worker", lambda: prometheus.up() == everyone | {"e"}, 90)
        wait_for("a plan with it", lambda: any("e" in event["plan"]["workers"] for event in run.events("plan")) or
                 run.process.poll() is not None, 120)
        resumed = len(run.events("resumed"))
        survivors = {name: address for name, address in addresses(metrics).items() if name != "b"}
        scraper = Scraper(survivors)
        scraper.start()
        run.kill("b")
        wait_for("the recovery", lambda: len(run.events("resumed")) > resumed or run.process.poll() is not None, 60)
        wait_for("targets without the lost worker", lambda: "b" not in prometheus.targets(), 30)
        scraper.ended.set()
        scraper.join(30)
        assert run.process.poll() is None, run.errors()[-2000:]
        assert not scraper.failed and scraper.count > len(survivors), scraper.failed
        wait_for("the survivors", lambda: prometheus.up() == set(survivors), 30)
        step = prometheus.query("heddle_step")["coordinator"]
        wait_for("further steps", lambda: prometheus.query("heddle_step").get("coordinator", 0) > step, 60)
        assert set(prometheus.query('count by (worker) ({__name__=~"heddle_.+"})')) >= set(survivors)
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert rules and all(rule["health"] == "ok" for rule in rules), rules
        print(f"{scraper.count} scrapes during the recovery, the slowest took {scraper.slowest:.3f} s; "
              f"{len(rules)} rules evaluate", flush=True)
    finally:
        joined.kill()
        joined.wait(30)


def main():
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        print("SKIPPED: no prometheus and promtool (package prometheus)", file=sys.stderr)
        sys.exit(77)
    with Scratch() as folder:
        run = Run(os.path.join(folder, "watched"), write_job(folder, prose(folder), 100000)).start()
        try:
            metrics = wait_for("the address of the metrics", lambda: run.job()["metrics"], 60)
            with Prometheus(folder, metrics) as prometheus:
                follow(run, prometheus, metrics)
        finally:
            run.process.send_signal(signal.SIGTERM)
            run.wait(60)


main()
