"""A worker is killed and another one drained: `heddle events` and `heddle explain` say so, with figures, and so
do the metrics. `heddle config` shows the limits of that job.

The run's folder is read while the job runs, by --follow, and after its end; the coordinator is asked while it runs.
"""
import json
import math
import os
import subprocess
import time

from harness import HEDDLE, PATIENCE, Run, Scratch, get, heddle, wait_for

STEPS = 40


def decisions(run):
    return {event["generation"]: event for event in run.events("decision")}


def check_complete(run):
    """Each generation that began has one decision, whose choice is among its alternatives."""
    began = [event["generation"] for event in run.events("plan")]
    decided = [event["generation"] for event in run.events("decision")]
    assert began == decided, (began, decided)
    for event in run.events("decision"):
        assert event["choice"] in [other["what"] for other in event["alternatives"]], event
        assert event["evidence"] and event["reason"] and event["cause"], event


def check_explained(run, worker, *where):
    loss = [event for event in run.events("decision") if event["cause"] == "loss"][0]
    [seen] = [item for item in loss["evidence"] if item.get("worker") == worker]
    assert seen["silent_seconds"] >= 0, seen
    shown = heddle("explain", str(loss["generation"]), *where)
    assert shown.returncode == 0, shown.stderr
    for part in (f"generation {loss['generation']}, in force since", "a worker was lost", f"  {worker}: ",
                 "its last word was", f"* {loss['choice']}, after step", "not possible: none are kept", loss["reason"],
                 "nobody trained for"):
        assert part in shown.stdout, (part, shown.stdout)
    as_json = heddle("explain", str(loss["generation"]), "--json", *where)
    assert json.loads(as_json.stdout) == loss, as_json.stdout
    return shown.stdout


def check_metrics(run):
    """The gauges have the figures of the log's last recovery."""
    lines = get(run.job()["metrics"]).splitlines()
    recovered = run.events("recovered")[-1]
    for name, field in (("heddle_predicted_recovery_seconds", "predicted_seconds"),
                        ("heddle_last_recovery_seconds", "seconds")):
        [value] = [float(line.split()[-1]) for line in lines if line.startswith((name + "{", name + " "))]
        assert math.isclose(value, recovered[field], rel_tol=1e-3), (name, value, recovered)


def check_config(run):
    """The job of the run's folder, and a longer lease that makes what follows from it longer."""
    job = os.path.join(run.folder, "job.yaml")
    limits = [{limit["name"]: limit for limit in json.loads(heddle("config", job, "--json", *more).stdout)}
              for more in ((), ("--set", "elastic.lease=30s"))]
    assert (limits[0]["lease"]["value"], limits[1]["lease"]["value"]) == (3, 30), limits
    for name in ("probe", "reply_timeout", "operation_timeout", "cut_off_timeout"):
        assert math.isclose(limits[1][name]["value"], 10 * limits[0][name]["value"]), name
    assert limits[0]["call_timeout"] == limits[1]["call_timeout"], "no job is known there"
    shown = heddle("config", job)
    assert shown.returncode == 0 and [line.split()[0] for line in shown.stdout.splitlines()] == list(limits[0]), shown
    refused(("config", job, "--set", "elastic.lease=2h"), "elastic.lease")


def refused(arguments, message):
    result = heddle(*arguments)
    assert result.returncode == 2 and message in result.stderr and len(result.stderr.splitlines()) <= 2, result


def main():
    with Scratch() as folder:
        # Slow, so that there is time to look.
        run = Run(os.path.join(folder, "run"), overrides=[f"workers.{i}.emulate.speed=0.1" for i in range(4)]).start()
        run.wait_step(5)
        follower = subprocess.Popen([HEDDLE, "events", "--run", run.folder, "--follow"], stdout=subprocess.PIPE,
                                    text=True, stdin=subprocess.DEVNULL)
        began = time.time()
        run.kill("b")
        wait_for("the recovery", lambda: run.events("recovered"))
        coordinator = run.job()["coordinator"]
        asked = check_explained(run, "b", "--coordinator", coordinator)
        check_metrics(run)
        assert "where it had been" in asked and "predicted" in asked and "actual" in asked, asked
        shown = heddle("events", "--coordinator", coordinator, "--since", str(began - 0.001))
        assert shown.returncode == 0 and "b is lost: " in shown.stdout, shown
        assert "worker_joined" not in shown.stdout, "that was before"
        refused(("events", "--coordinator", coordinator, "--job", "no-such-job"), "the job is ")
        assert heddle("drain", "c", "--run", run.folder).returncode == 0
        run.finish()

        check_complete(run)
        check_config(run)
        left = [event for event in run.events("decision") if event["cause"] == "leave"]
        assert not left or left[0]["choice"] == "replan" and left[0]["evidence"][0]["worker"] == "c", left
        check_explained(run, "b", "--run", run.folder)
        newest = max(decisions(run))
        assert heddle("explain", "--run", run.folder).stdout.startswith(f"generation {newest}, ")

        followed = follower.communicate(timeout=PATIENCE)[0].splitlines()
        assert follower.returncode == 0, "it ends with the job"
        listed = heddle("events", "--run", run.folder).stdout.splitlines()
        assert followed == listed and " job_finished " in listed[-1], (followed, listed)
        assert not any(" step  " in line for line in listed)
        lines = heddle("events", "--run", run.folder, "--steps", "--json").stdout.splitlines()
        assert [json.loads(line) for line in lines] == run.events(), "all of them, as they are"
        job = open(os.path.join(run.folder, "job.hash"), encoding="utf-8").read().strip()
        assert heddle("events", "--run", run.folder, "--job", job[:6]).returncode == 0

        with open(os.path.join(run.folder, "events.jsonl"), "a", encoding="utf-8") as log:
            log.write("no event\n")
        damaged = heddle("events", "--run", run.folder)
        assert damaged.returncode == 0 and "1 lines are no events" in damaged.stderr, damaged
        refused(("explain", "999", "--run", run.folder), "generation 999 has no decision; the newest that have one: ")
        refused(("explain", "x", "--run", run.folder), "GENERATION x: a number from 1")
        refused(("events", "--run", folder), "no run is there")
        refused(("events", "--run", run.folder, "--job", "other"), "the job is ")
        refused(("events", "--run", run.folder, "--since", "yesterday"), "--since yesterday: ")


main()
