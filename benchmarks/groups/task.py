"""Stages of several workers on one machine: what dividing each layer costs, and whether their steps take as predicted.

over_one           throughput of a group of two equal workers over that of one worker of twice their speed
prediction_error   measured over predicted step time of a plan with groups, less 1
mean_error, worst_error   of all plans, their sign left out
boundary           step time of a pipeline of a group of two and one of three, over the mean of those of two groups of
                   two and of two groups of three, less 1
over_link          bytes a second at which a worker gets its state from others' memory, over those of its link
memory_over_predicted   the workers' processes at their peak over what the plan predicts of them

All workers are emulated: together they take at most 1.2 of two cores. The runs of over_one take turns.
"""
import json
import os
import signal

from support import heddle, report
from support.heddle import Failure, Train

JOB = """name: groups
steps: 100000
seed: 1
model: {{model_type: {family}, hidden_size: {hidden}, intermediate_size: {inner}, num_hidden_layers: {layers},
        num_attention_heads: {heads}, max_position_embeddings: 128}}
data: {{text: /usr/share/games/fortunes, validation_fraction: 0}}
batch: {{microbatch: {microbatch}, global: {samples}, sequence: 128}}
optimizer: {{learning_rate: 3e-4, schedule: constant}}
determinism: relaxed
workers:
{workers}
elastic: {{drift_threshold: 100}}
checkpoint: {{last: false}}
"""
LARGE = {"family": "llama", "hidden": 1024, "inner": 2752, "layers": 2, "heads": 16, "microbatch": 2, "samples": 4}
SMALL = {"family": "llama", "hidden": 256, "inner": 688, "layers": 4, "heads": 8, "microbatch": 2, "samples": 24}
# Two and three members have equal shares of it.
EVEN = {**SMALL, "samples": 12, "hidden": 384, "inner": 1032, "heads": 6}
GPT2 = {**SMALL, "family": "gpt2", "inner": 1024}
# Name: model, workers of a group, speeds, and what else the job says.
PLANS = {
    "pair": (SMALL, 2, [0.4, 0.4], []),
    "unlike-pair": (SMALL, 2, [0.5, 0.25], []),
    "unlike-three": (SMALL, 3, [0.4, 0.3, 0.1], []),
    "four": (SMALL, 4, [0.25] * 4, []),
    "two-pairs": (SMALL, 2, [0.25] * 4, []),
    "unlike-pairs": (SMALL, 2, [0.3, 0.3, 0.15, 0.15], []),
    "three-pairs": (SMALL, 2, [0.15] * 6, []),
    "pairs-divided": (SMALL, 2, [0.25] * 4, ["parallel.optimizer=divided"]),
    "gpt2-pair": (GPT2, 2, [0.4, 0.4], []),
    "pair-tcp": (SMALL, 2, [0.4, 0.4], ["comm.transports=[tcp]"]),
}
WARM = 3  # First steps of a run: connections, caches and allocator.
FULL = {"repetitions": 5, "steps": 12}
QUICK = {"repetitions": 2, "steps": 6}
PATIENCE = 300
LINK = 125e6  # Bytes a second of a link in `moves`, 1 Gbit.


def write_job(folder, name, shape, speeds):
    workers = "\n".join(f"  - {{emulate: {{speed: {speed}}}}}" for speed in speeds)
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(workers=workers, **shape))
    return path


def measured(folder, job, overrides, steps):
    """(median seconds of a step, predicted seconds, tokens of a step, peak of the processes over the prediction)"""
    run = Train(folder, job, overrides).start()
    try:
        heddle.wait_until("its steps",
                          lambda: run.check_running() or len(run.events("step")) >= WARM + steps, PATIENCE)
        plans = run.events("plan")
        figures = heddle.scrape(run)
    finally:
        run.stop()
    if len(plans) != 1:
        raise Failure(f"{job}: the plan changed")
    events = run.events("step")[WARM:]
    seconds = report.median([event["seconds"] for event in events])
    memory = figures["heddle_process_memory_peak_bytes"] / figures["heddle_predicted_process_memory_bytes"]
    return seconds, plans[0]["predicted_step_seconds"], events[0]["tokens"], memory


def against_one(options, settings, rows):
    rates = {"one": [], "pair": []}
    for number in range(options.repeat or settings["repetitions"]):
        kinds = [("one", [0.8], []), ("pair", [0.4, 0.4], ["parallel.tensor=2"])]
        for kind, speeds, overrides in kinds if number % 2 == 0 else kinds[::-1]:
            job = write_job(options.folder, kind, LARGE, speeds)
            seconds, _, tokens, _ = measured(os.path.join(options.folder, f"over-one-{kind}-{number}"), job, overrides,
                                          settings["steps"] // 3)
            rates[kind].append(tokens / seconds)
            report.say(f"{kind}: {tokens / seconds:.0f} tokens/s")
    case = {"hidden": LARGE["hidden"], "repetitions": len(rates["one"])}
    rows.add(case, "heddle", True, "over_one", report.median(rates["pair"]) / report.median(rates["one"]), "ratio")


def predictions(options, settings, rows):
    errors = []
    for name, (shape, size, speeds, overrides) in PLANS.items():
        job = write_job(options.folder, name, shape, speeds)
        found = [measured(os.path.join(options.folder, f"{name}-{number}"), job,
                          [f"parallel.tensor={size}", *overrides], settings["steps"])
                 for number in range(options.repeat or settings["repetitions"])]
        error = report.median([seconds / predicted - 1 for seconds, predicted, _, _ in found])
        errors.append(abs(error))
        report.say(f"{name}: step {found[0][0]:.3f} s, predicted {found[0][1]:.3f} s")
        case = {"plan": name, "repetitions": len(found)}
        rows.add(case, "heddle", True, "prediction_error", error, "ratio")
        rows.add(case, "heddle", True, "memory_over_predicted", report.median([one[3] for one in found]), "ratio")
    case = {"plans": len(errors)}
    rows.add(case, "heddle", True, "mean_error", sum(errors) / len(errors), "ratio")
    rows.add(case, "heddle", True, "worst_error", max(errors), "ratio")


def pipeline_plan(folder, sizes):
    """(plan file, speeds): a pipeline of two groups of these sizes, each with half a core and half of the segments."""
    layouts, stages, speeds = [], [], []
    for position, size in enumerate(sizes):
        job = write_job(folder, f"group-of-{size}", EVEN, [0.5 / size] * size)
        plan = json.loads(heddle.command("plan", job, "--json", "--set", f"parallel.tensor={size}"))
        stage = plan["pipelines"][0]["stages"][0]
        middle = stage["last_segment"] // 2
        stages.append({**stage, "layout": position, "group": list(range(len(speeds), len(speeds) + size)),
                       "first_segment": [0, middle][position],
                       "last_segment": [middle, stage["last_segment"]][position]})
        layouts += plan["layouts"]
        speeds += [0.5 / size] * size
    if layouts[0] == layouts[1]:
        del layouts[1]
        stages[1]["layout"] = 0
    plan["pipelines"][0]["stages"] = stages
    plan.update(layouts=layouts, workers=[f"worker-{rank}" for rank in range(len(speeds))], transports=[],
                predicted_peak_bytes=[0] * len(speeds))
    del plan["predicted_process_bytes"]
    path = os.path.join(folder, f"{sizes[0]}-{sizes[1]}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    return path, speeds


def boundary(options, settings, rows):
    kinds = {sizes: pipeline_plan(options.folder, sizes) for sizes in ((2, 2), (2, 3), (3, 3))}
    found = []
    for number in range(options.repeat or settings["repetitions"]):
        seconds = {}
        for sizes, (plan, speeds) in list(kinds.items())[::1 if number % 2 == 0 else -1]:
            job = write_job(options.folder, f"boundary-{sizes[0]}-{sizes[1]}", EVEN, speeds)
            seconds[sizes], predicted, _, _ = measured(os.path.join(options.folder, f"{sizes[0]}-{sizes[1]}-{number}"),
                                                       job, [f"plan={plan}"], settings["steps"] // 2)
            report.say(f"groups of {sizes}: step {seconds[sizes]:.3f} s, predicted {predicted:.3f} s")
        found.append(2 * seconds[2, 3] / (seconds[2, 2] + seconds[3, 3]) - 1)
    rows.add({"hidden": EVEN["hidden"], "repetitions": len(found)}, "heddle", True,
             "boundary", report.median(found), "ratio")


def moves(options, settings, rows):
    """Of two pairs one member is killed, and comes back: the other pair has its state, and that of its partner, who is
    left out meanwhile."""
    found = []
    for number in range(options.repeat or settings["repetitions"]):
        job = write_job(options.folder, "moves", LARGE, [0.25] * 4)
        run = Train(os.path.join(options.folder, f"moves-{number}"), job,
                    ["parallel.tensor=2", "elastic.restart=true",
                     *(f"workers.{worker}.emulate.link=1Gbit" for worker in range(4))]).start()
        try:
            wait_for(run, "its first steps", lambda: len(run.events("step")) >= WARM)
            with open(os.path.join(run.folder, "job.json"), encoding="utf-8") as file:
                os.kill(json.load(file)["workers"][3]["pid"], signal.SIGKILL)
            wait_for(run, "the state of the killed one", lambda: transfers(run))
            found += transfers(run)
        finally:
            run.stop()
    rows.add({"hidden": LARGE["hidden"], "moves": len(found)}, "heddle", True,
             "over_link", report.median(found), "ratio")


def wait_for(run, what, condition):
    heddle.wait_until(what, lambda: run.check_running() or condition(), PATIENCE)


def members(plan):
    return {rank for pipeline in plan["pipelines"] for stage in pipeline["stages"] for rank in stage["group"]}


def transfers(run):
    """Of each plan whose new members got their state from others: the part of its link at which each got it."""
    found, plans = [], run.events("plan")
    for moved in run.events("state_moved"):
        before, after = ([event["plan"] for event in plans if (event["time"] >= moved["time"]) == is_after]
                         for is_after in (False, True))
        if before and after and moved["bytes"] > 0 and moved["seconds"] > 0:
            old, new = ({plan["workers"][rank] for rank in members(plan)} for plan in (before[-1], after[0]))
            if new - old:
                found.append(moved["bytes"] / len(new - old) / moved["seconds"] / LINK)
    return found


def run(options, rows):
    settings = QUICK if options.quick else FULL
    if options.only in "moves":
        moves(options, settings, rows)
    if options.only in "boundary":
        boundary(options, settings, rows)
    if options.only in "one":
        against_one(options, settings, rows)
    if options.only in "predictions":
        predictions(options, settings, rows)
    return False
