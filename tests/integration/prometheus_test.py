"""A real Prometheus watches a job: it finds every worker through the coordinator's service discovery, follows a
join and a loss, and is answered while the job recovers. promtool finds nothing to say about what is exposed.
Exit 77: no Prometheus.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse

from harness import HEDDLE, PATIENCE, REPOSITORY, Run, Scratch, get, wait_for
from harness.served import write_job
from harness.text_data import prose
from ports import held_port

CONFIG = """global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: heddle
    http_sd_configs: [{{url: "http://{metrics}/sd", refresh_interval: 1s}}]
"""


class Prometheus:
    def __init__(self, folder, metrics):
        self.address = f"127.0.0.1:{held_port()}"
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
        self.process.wait(60)
        self.log.close()

    def ask(self, path, **arguments):
        try:
            return json.loads(get(self.address, f"/api/v1/{path}?{urllib.parse.urlencode(arguments)}"))["data"]
        except OSError:
            return None

    def up(self):
        """Names of the targets that answer."""
        targets = (self.ask("targets", state="active") or {}).get("activeTargets", [])
        return {target["labels"].get("worker") for target in targets if target["health"] == "up"}

    def targets(self):
        return {t["labels"].get("worker") for t in (self.ask("targets", state="active") or {}).get("activeTargets", [])}

    def rules(self):
        """The different ends of their evaluations."""
        return {rule["health"] for group in (self.ask("rules") or {}).get("groups", []) for rule in group["rules"]}

    def query(self, text):
        data = self.ask("query", query=text)
        return {r["metric"].get("worker"): float(r["value"][1]) for r in data["result"]} if data else {}


def addresses(metrics):
    """By name, from service discovery itself."""
    return {group["labels"]["worker"]: group["targets"][0] for group in json.loads(get(metrics, "/sd"))}


class Scraper(threading.Thread):
    """Scrapes some addresses in turn; every scrape must be answered."""

    def __init__(self, names):
        super().__init__(daemon=True)
        self.names, self.ended, self.count, self.failed = names, threading.Event(), 0, []

    def run(self):
        while not self.ended.wait(0.02):
            for name, address in self.names.items():
                try:
                    assert "heddle_" in get(address)
                except (OSError, AssertionError) as error:
                    self.failed.append(f"{name}: {error}")
                self.count += 1


def check_format(name, address):
    done = subprocess.run(["promtool", "check", "metrics"], input=get(address), text=True,
                          capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0 and not (done.stdout + done.stderr).strip(), f"{name}: {done.stdout}{done.stderr}"


def follow(run, prometheus, metrics):
    everyone = {"coordinator", "a", "b", "c"}
    wait_for("all targets", lambda: prometheus.up() == everyone)
    run.wait_step(3)
    found = addresses(metrics)
    for name in ("coordinator", "a"):
        check_format(name, found[name])

    joined = subprocess.Popen([HEDDLE, "worker", "--coordinator", run.job()["coordinator"], "--name", "e",
                               "--emulate", "speed=0.1"], stdout=run.log, stderr=run.log, stdin=subprocess.DEVNULL)
    try:
        wait_for("the joined worker", lambda: prometheus.up() == everyone | {"e"})
        wait_for("a plan with it", lambda: any("e" in event["plan"]["workers"] for event in run.events("plan")) or
                 run.process.poll() is not None)
        resumed = len(run.events("resumed"))
        survivors = {name: address for name, address in addresses(metrics).items() if name != "b"}
        scraper = Scraper(survivors)
        scraper.start()
        run.kill("b")
        wait_for("the recovery", lambda: len(run.events("resumed")) > resumed or run.process.poll() is not None)
        wait_for("targets without the lost worker", lambda: "b" not in prometheus.targets())
        scraper.ended.set()
        scraper.join(PATIENCE)
        assert run.process.poll() is None, run.errors()[-2000:]
        assert not scraper.failed and scraper.count > len(survivors), scraper.failed
        wait_for("the survivors", lambda: prometheus.up() == set(survivors))
        step = wait_for("a step", lambda: prometheus.query("heddle_step").get("coordinator"))
        wait_for("further steps", lambda: prometheus.query("heddle_step").get("coordinator", 0) > step)
        wait_for("metrics of the survivors", lambda: set(
            prometheus.query('count by (worker) ({__name__=~"heddle_.+"})')) >= set(survivors))
        wait_for("rules that evaluate", lambda: prometheus.rules() == {"ok"})
        print(f"{scraper.count} scrapes during the recovery", flush=True)
    finally:
        joined.kill()
        joined.wait(60)


def main():
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        print("SKIPPED: no prometheus and promtool (package prometheus)", file=sys.stderr)
        sys.exit(77)
    with Scratch() as folder:
        run = Run(os.path.join(folder, "watched"), write_job(folder, prose(folder), 100000)).start()
        try:
            metrics = wait_for("the address of the metrics", lambda: run.job()["metrics"])
            with Prometheus(folder, metrics) as prometheus:
                follow(run, prometheus, metrics)
        finally:
            run.process.send_signal(signal.SIGTERM)
            run.wait()


main()
