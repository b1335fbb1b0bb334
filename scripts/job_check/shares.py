"""Whether the planner gives each worker its due: the job against the sum of its workers."""
import statistics

from job_check.check import CARD, PROCESSORS, counted_steps, microbatches_of, wait_while_running

GOAL = 0.95
STEP_SECONDS = 0.8  # That a step shall take.
STEPS = 12  # That are measured, after WARM ones of the same plan, which are left out.
WARM = 2
ALONE_STEPS = 6
REPETITIONS = 2
WORKERS = (CARD, *PROCESSORS)
ENDLESS = "steps: 100000\ncheckpoint: {last: false}\n"


def rate(steps):
    """Tokens a second between the first of the steps and the last."""
    return sum(step["tokens"] for step in steps[1:]) / (steps[-1]["time"] - steps[0]["time"])


def together(check, name, batch):
    """(tokens/s, predicted step, measured step, microbatches by worker) of the newest plan."""
    # A test's machine has fewer cores than workers: what it measures would change the plan again and again.
    drift = "elastic.drift=observe" if check.small else "elastic.drift=act"
    run = check.start(name, check.job(name, [check.entry(worker) for worker in WORKERS], batch, ENDLESS), drift)

    def steady():
        plans = run.events("plan")
        found = [step for step in counted_steps(run) if step["generation"] == plans[-1]["generation"]] if plans else []
        return (plans[-1], found) if len(found) > WARM + STEPS else None
    plan, steps = wait_while_running(run, f"{WARM + STEPS} steps of one plan", steady)
    check.end_all()
    steps = steps[WARM:]
    measured = statistics.median(step["seconds"] for step in steps[1:])
    return rate(steps), plan["predicted_step_seconds"], measured, microbatches_of(plan["plan"])


def alone(check, number, seconds):
    """By worker, tokens/s of a job of its own, while all of them train. Batches are in proportion to speeds, so that
    all steps take about as long."""
    runs = {}
    for worker in WORKERS:
        batch = max(1, round(seconds * check.speed(worker)))
        name = f"shares-{number}-{worker}"
        runs[worker] = check.start(name, check.job(name, [check.entry(worker)], batch, ENDLESS))

    def common():
        steps = {worker: counted_steps(run)[1:] for worker, run in runs.items()}
        if not all(steps.values()):
            return None
        first = max(events[0]["time"] for events in steps.values())
        last = min(events[-1]["time"] for events in steps.values())
        steps = {worker: [event for event in events if first <= event["time"] <= last]
                 for worker, events in steps.items()}
        return steps if all(len(events) > ALONE_STEPS for events in steps.values()) else None
    for worker, run in runs.items():
        wait_while_running(run, f"a step of {worker} alone", lambda run=run: run.events("step"))
    steps = wait_while_running(runs[CARD], f"{ALONE_STEPS} steps of all alone", common)
    check.end_all()
    return {worker: rate(events) for worker, events in steps.items()}


def run(check):
    batch = check.batch_near(STEP_SECONDS * sum(check.speed(worker) for worker in WORKERS))
    seconds = batch / sum(check.speed(worker) for worker in WORKERS)
    ratios, predictions, shares = [], [], {}
    for number in range(1 if check.small else REPETITIONS):
        throughput, predicted, measured, shares = together(check, f"shares-{number}", batch)
        check.note("together", batch=batch, tokens_per_second=throughput, predicted_step_seconds=predicted,
                   measured_step_seconds=measured, microbatches=shares)
        each = alone(check, number, seconds)
        check.note("alone", tokens_per_second=each)
        ratios.append(throughput / sum(each.values()))
        predictions.append(predicted / measured)
    r_sum = statistics.median(ratios)
    check.note("shares", r_sum=r_sum, goal=GOAL, ratios=ratios, predicted_over_measured=predictions)
    text = " ".join(f"{worker}:{shares.get(worker, 0)}" for worker in WORKERS)
    said = (f"r_sum {r_sum:.3f} (goal {GOAL}), predicted over measured {statistics.median(predictions):.3f}, "
            f"microbatches {text}")
    return said, check.small or (r_sum >= GOAL and all(shares.get(worker) for worker in WORKERS))
