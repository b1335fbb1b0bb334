#!/usr/bin/env python3
"""Each alert fires for its cause, and none of them for runs that end well. promtool evaluates the shipped rules over
series that are written here: a sound run, and for each alert the few of its series that the cause changes. Left
without its cause, each case has to fail: it is the cause that fires the alert, and nothing else.

Usage: alerts_test.py SOURCE_FOLDER. Exit 77: no promtool.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

# Minutes: a step takes a second, a checkpoint is saved every hour, a worker is lost and recovered from once.
ENDS, LENGTH, FAULT, LOSS = 240, 480, 100, 60
HOUR = 3600
WORKERS = ("a", "b")
GONE, NAN = "stale", "NaN"


def series(name, worker, **labels):
    every = {"job": "heddle", "instance": f"{worker}:1", "worker": worker, **labels}
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in every.items()) + "}"


def rising(rate, begins=0):
    return lambda minute: rate * max(0, minute - begins)


def at_end(value):
    """What the coordinator goes on to show when its job has ended."""
    return lambda minute: value(min(minute, ENDS))


def saved(minute):
    return "_" if minute < 60 else minute // 60 * HOUR


def recovery(seconds, minute_of):
    """The histogram of one recovery of so many seconds."""
    return {series("heddle_recovery_seconds_bucket", "coordinator", le=bound):
            lambda minute, bound=bound: int(minute >= minute_of and seconds <= float(bound))
            for bound in ("5", "10", "25", "50", "100", "+Inf")}


def sound_run():
    """The series of a run under `heddle serve`, whose coordinator outlives the job: value by minute."""
    run = {series("up", "coordinator"): lambda minute: 1,
           series("heddle_job_running", "coordinator"): lambda minute: int(minute < ENDS),
           series("heddle_workers_lost_total", "coordinator"): lambda minute: int(minute >= LOSS),
           series("heddle_checkpoint_failures_total", "coordinator", scope="checkpoint"): lambda minute: 0,
           series("heddle_checkpoint_last_success_timestamp_seconds", "coordinator"): at_end(saved),
           **recovery(4, LOSS)}
    for worker in ("coordinator", *WORKERS):
        figures = {series("heddle_tokens_total", worker): rising(60 * 64),
                   series("heddle_step_seconds_sum", worker): rising(60),
                   series("heddle_step_seconds_count", worker): rising(60),
                   series("heddle_predicted_step_seconds", worker): lambda minute: 1,
                   series("heddle_loss", worker): lambda minute: 6 - minute / 100}
        if worker != "coordinator":
            figures[series("up", worker)] = lambda minute: 1
            figures[series("heddle_checkpoint_failures_total", worker, scope="worker")] = lambda minute: 0
            figures[series("heddle_checkpoint_stall_seconds_sum", worker)] = rising(0.6)
        for name, value in figures.items():
            run[name] = at_end(value) if worker == "coordinator" else (
                lambda minute, value=value: value(minute) if minute < ENDS else GONE if minute == ENDS else "_")
    return run


def all_at_once(run):
    """The same under `heddle train`: all processes end together, and service discovery with them."""
    return {name: (lambda minute, value=value: value(minute) if minute < ENDS else 0) if name.startswith("up{") else
            (lambda minute, value=value: value(minute) if minute < ENDS else GONE if minute == ENDS else "_")
            for name, value in run.items()}


def with_fault(run, name, after):
    """The named series as they are until the fault, then `after(value at the fault, minutes since)`."""
    changed = {one: (lambda minute, value=value:
                     value(minute) if minute < FAULT else after(value(FAULT), minute - FAULT))
               for one, value in run.items() if one.startswith(name)}
    assert changed, name
    return {**run, **changed}


# Alert: what goes wrong, when it has to fire, its labels beside `job`, its summary.
CAUSES = {
    "HeddleTrainingStopped": (
        lambda run: with_fault(run, "heddle_tokens_total", lambda value, since: value), FAULT + 11, {},
        "heddle: no step for 10 minutes"),
    "HeddleTargetDown": (
        lambda run: with_fault(with_fault(run, series("up", "a"), lambda value, since: 0),
                               series("heddle_tokens_total", "a"), lambda value, since: GONE), FAULT + 3,
        {"instance": "a:1", "worker": "a"}, "a:1 of heddle does not answer"),
    "HeddleLosesWorkers": (
        lambda run: with_fault(run, "heddle_workers_lost_total", lambda value, since: value + min(since, 4)),
        FAULT + 10, {}, "heddle lost 5 workers within an hour"),
    "HeddleRecoverySlow": (
        lambda run: {**run, **recovery(40, FAULT)}, FAULT + 5, {}, "heddle: recoveries take 48.75s"),
    "HeddleSlowerThanPredicted": (
        lambda run: with_fault(run, "heddle_step_seconds_sum", lambda value, since: value + 90 * since), FAULT + 30,
        {}, "heddle: steps take much longer than the plan predicts"),
    "HeddleLossNotFinite": (
        lambda run: with_fault(run, "heddle_loss", lambda value, since: NAN), FAULT + 1, {},
        "heddle: the loss is not a number"),
    # The first one that ever fails.
    "HeddleCheckpointFails": (
        lambda run: with_fault(run, series("heddle_checkpoint_failures_total", "coordinator", scope="checkpoint"),
                               lambda value, since: 1), FAULT + 2, {}, "heddle: a checkpoint could not be written"),
    "HeddleCheckpointOld": (
        lambda run: with_fault(run, "heddle_checkpoint_last_success_timestamp_seconds", lambda value, since: value),
        60 + 130, {}, "heddle: the newest checkpoint is 2h 10m 0s old"),
    "HeddleCheckpointStalls": (
        lambda run: with_fault(run, "heddle_checkpoint_stall_seconds_sum", lambda value, since: value + 6 * since),
        FAULT + 50, {}, "heddle: training stands still for checkpoints more than 5 % of the time"),
}


def input_of(run):
    return [{"series": name, "values": " ".join(str(value(minute)) for minute in range(LENGTH))}
            for name, value in run.items()]


def promtool(rules, run, expected):
    """Whether the alerts are those expected: (minute, alert name, list of alerts)."""
    test = {"rule_files": [str(rules)], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": input_of(run),
                       "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts}
                                           for minute, name, alerts in expected]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
        json.dump(test, file)  # JSON is YAML.
        file.flush()
        done = subprocess.run(["promtool", "test", "rules", file.name], capture_output=True, text=True, timeout=120,
                              check=False)
    return done.returncode == 0, done.stdout + done.stderr


def problems_of(rules_path):
    rules = {rule["alert"]: rule for group in yaml.safe_load(rules_path.read_text(encoding="utf-8"))["groups"]
             for rule in group["rules"]}
    for name in sorted(set(rules) ^ set(CAUSES)):
        yield f"{name}: the rules and the causes of this test differ"
    sound = sound_run()
    moments = (5, FAULT + 11, FAULT + 50, ENDS - 1, ENDS + 4, ENDS + 20, LENGTH - 1)
    for what, run in (("ends well", sound), ("ends with all its processes", all_at_once(sound))):
        good, said = promtool(rules_path, run, [(minute, name, []) for minute in moments for name in rules])
        if not good:
            yield f"a run that {what} has alerts:\n{said}"
    for name, (cause, minute, labels, summary) in CAUSES.items():
        if name not in rules:
            continue
        alert = {"exp_labels": {"job": "heddle", "severity": rules[name]["labels"]["severity"], **labels},
                 "exp_annotations": {**rules[name]["annotations"], "summary": summary}}
        good, said = promtool(rules_path, cause(sound), [(minute, name, [alert])])
        if not good:
            yield f"{name} does not fire for its cause:\n{said}"
        if promtool(rules_path, sound, [(minute, name, [alert])])[0]:
            yield f"{name} fires without its cause"


def main():
    if shutil.which("promtool") is None:
        print("SKIPPED: promtool (Debian's package prometheus) is not installed", file=sys.stderr)
        sys.exit(77)
    problems = list(problems_of(pathlib.Path(sys.argv[1]).resolve() / "metrics" / "alerts.yml"))
    for problem in problems:
        print(f"alerts: error: {problem}")
    print(f"{len(CAUSES)} alerts")
    sys.exit(1 if problems else 0)


main()
