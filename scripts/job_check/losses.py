"""A job whose card's worker is killed, and the same plans without the kill."""
import json
import os
import signal

import harness
from job_check.check import CARD, PROCESSORS, counted_steps, last_line, microbatches_of, wait_while_running

NEWCOMER = CARD + "-2"
WORKERS = (CARD, *PROCESSORS[:2])
BEFORE, BETWEEN, AFTER = 8, 4, 15  # Steps before the kill, without a card, and with the new worker.
STEP_SECONDS = 0.3  # That a step of the card alone, or of the processors alone, shall take at least.
JOIN_SECONDS, SMALL_JOIN_SECONDS = 40, 6  # For which the processors have steps, while the new worker starts.
SMALL_SPEED = 0.3  # Of an emulated processor, which waits more than it computes.


def kill_and_join(check, run):
    """(steps between the loss and the join, the newcomer's process)."""
    def plan_with(worker):
        found = [event for event in run.events("plan") if worker in event["plan"]["workers"]]
        return found[-1] if found else None
    plan = wait_while_running(run, "a plan", lambda: plan_with(CARD))
    shares = microbatches_of(plan["plan"])
    assert CARD in shares and len(shares) > 1, f"the plan leaves out the card or all processors: {shares}"
    wait_while_running(run, f"step {BEFORE}", lambda: run.step() >= BEFORE)
    check_guarantee(check, run)
    os.kill(run.pids()[CARD], signal.SIGKILL)
    wait_while_running(run, "the loss of the card's worker",
                       lambda: any(event["worker"] == CARD for event in run.events("worker_lost")))

    def plans_without():
        return [event for event in run.events("plan") if CARD not in event["plan"]["workers"]]
    without = wait_while_running(run, "a plan without it", plans_without)[0]
    wait_while_running(run, f"{BETWEEN} steps without a card",
                       lambda: len([step for step in counted_steps(run) if step["time"] > without["time"]]) >= BETWEEN)
    check_guarantee(check, run)
    newcomer = check.worker(run, NEWCOMER)
    joined = wait_while_running(run, "a plan with the new worker", lambda: plan_with(NEWCOMER))
    assert NEWCOMER in microbatches_of(joined["plan"]), f"the new worker has nothing to do: {joined['plan']}"
    between = [step for step in counted_steps(run) if without["time"] < step["time"] < joined["time"]]
    wait_while_running(run, "a step with the new worker",
                       lambda: [step for step in run.events("step") if step["generation"] == joined["generation"]])
    check_guarantee(check, run)
    return between, newcomer


def check_guarantee(check, run):
    """The status promises what unlike workers can: the workers that trained so far are alike only on a processor."""
    status = json.loads(check.heddle("status", "--run", run.folder, "--json")[1])
    expected = "plan-invariant" if check.device == "cpu" else "per-plan"
    found, reason = status["guarantee"], status.get("guarantee_reason", "")
    check.note("guarantee", guarantee=found, reason=reason)
    has_reason = bool(reason) == (found != "plan-invariant")
    assert found == expected and has_reason, f"guarantee {found} ({reason}), not {expected}"


def kill(check):
    check.killed = False
    speed = check.speed(PROCESSORS[0]) * (SMALL_SPEED if check.small else 1)
    batch = check.batch_near(STEP_SECONDS * max(check.speed(CARD), 2 * speed))
    steps = BEFORE + AFTER + round((SMALL_JOIN_SECONDS if check.small else JOIN_SECONDS) * 2 * speed / batch)
    entries = [check.entry(worker, speed=SMALL_SPEED if check.small and worker != CARD else None) for worker in WORKERS]
    job = check.job("kill", entries, batch, f"steps: {steps}\ncheckpoint: {{every: 20}}\n")
    # Further changes of plan would only take time, as they are replayed.
    run = check.start("kill", job, "elastic.drift=observe")
    between, newcomer = kill_and_join(check, run)
    run.finish()
    code = newcomer.wait(60)
    assert code == 0, f"the new worker ended with exit code {code}: {last_line(run.errors())}"
    check_whole(run, steps, batch)
    check.killed = (run, batch)
    repeated = sum(event["steps_repeated"] for event in run.events("resumed"))
    guarantee = run.events("guarantee")[-1]["guarantee"]
    pause = [event["seconds"] for event in run.events("resumed")]
    check.note("kill", steps=steps, between=len(between), repeated=repeated, resumed_seconds=pause, guarantee=guarantee,
               generations=run.events("plan")[-1]["generation"])
    return (f"{steps} steps, {len(between)} between loss and join, {repeated} repeated, resumed after "
            f"{max(pause, default=0):.2f} s, guarantee {guarantee}"), len(between) >= BETWEEN


def check_whole(run, steps, batch):
    """One job that was never begun again, and each step and sample once."""
    harness.check_samples(run, steps, batch)
    for event, times in (("job_started", 1), ("job_finished", 1), ("coordinator_restarted", 0)):
        found = len(run.events(event))
        assert found == times, f"{found} events {event}, not {times}"


def spans(run):
    """(plan, first step, last step) of each generation whose steps count."""
    plans = {event["generation"]: event["plan"] for event in run.events("plan")}
    found = []
    for step in counted_steps(run):
        if not found or found[-1][0] != step["generation"]:
            found.append([step["generation"], step["step"], step["step"]])
        found[-1][2] = step["step"]
    return [(plans[generation], first, last) for generation, first, last in found]


def figures(step):
    return step["loss"], step["gradient_norm"]


def replay_span(check, number, span, batch, resume):
    """(steps, last checkpoint) of a run of the plan alone."""
    plan, first, last = span
    path = os.path.join(check.folder, f"replay-{number}.plan.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    entries = [check.entry(worker) for worker in plan["workers"]]
    job = check.job(f"replay-{number}", entries, batch,
                    f"steps: {last}\nplan: {path}\n" + (f"checkpoint: {{resume: {resume}}}\n" if resume else ""))
    run = check.start(f"replay-{number}", job).finish()
    followed = [event["plan"]["pipelines"] for event in run.events("plan")]
    assert followed == [plan["pipelines"]], f"generation {number} was not replayed by its plan alone"
    steps = counted_steps(run)
    assert [step["step"] for step in steps] == list(range(first, last + 1)), f"replayed steps are not {first} to {last}"
    return steps, newest_checkpoint(run, last)


def newest_checkpoint(run, step):
    return os.path.join(run.folder, "checkpoints", f"step-{step:08d}")


def replay(check):
    if check.killed is None:
        kill(check)
    assert check.killed, "the part kill has left no whole job"
    run, batch = check.killed
    expected, compared, resume, different = counted_steps(run), 0, None, []
    found_spans = spans(run)
    for number, span in enumerate(found_spans):
        steps, resume = replay_span(check, number, span, batch, resume)
        for step in steps:
            ours = expected[step["step"] - 1]
            compared += 1
            if figures(step) != figures(ours):
                different.append(step["step"])
        check.note("replayed", first=span[1], last=span[2], workers=span[0]["workers"], different=different)
    last = newest_checkpoint(run, expected[-1]["step"])
    code, _ = check.heddle("checkpoint", "diff", "--quiet", last, resume, codes=(0, 1))
    check.note("replay", compared=compared, different=different, weights_equal=code == 0)
    first = f" (the first at step {different[0]})" if different else ""
    said = (f"{compared} losses and norms of {len(found_spans)} plans compared, {len(different)} differ{first}, "
            f"weights {'differ' if code else 'are equal'}")
    return said, not different and code == 0
