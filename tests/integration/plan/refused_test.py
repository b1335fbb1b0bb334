"""Plan files with groups that nobody can run: one line with the file's name, exit code 2, before a worker starts."""
import copy
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import SMOKE, Scratch, heddle  # noqa: E402


def layout(plan):
    return plan["layouts"][0]


def stages(plan):
    return plan["pipelines"][0]["stages"]


def placed(plan, name):
    return layout(plan)["tensors"][name]


def in_two_groups(plan):
    again = copy.deepcopy(stages(plan)[0])
    stages(plan)[0]["last_segment"] = again["first_segment"] = 4
    stages(plan).append(again)


def unlike_sums(plan):
    layout(plan)["cuts"].append([1, 2])
    placed(plan, "embedding.weight")["cut"] = 1


def replicas_of_more(plan):
    """A second pipeline of the same layout needs other workers."""
    again = copy.deepcopy(plan["pipelines"][0])
    again.update(first_microbatch=6, microbatches=6)
    plan["pipelines"][0]["microbatches"] = 6
    again["stages"][0]["group"] = [2, 3]
    plan["pipelines"].append(again)


# What is changed of a plan of one group of a and b, and what is said of it.
FAULTS = {
    "a worker in two groups": (in_two_groups, "worker a holds two stages"),
    "a worker twice in a group": (lambda plan: stages(plan)[0].update(group=[0, 0]), "worker a is in its group twice"),
    "a worker that is none": (lambda plan: stages(plan)[0].update(group=[0, 2]), "worker 2 is not in 0..1"),
    "more pipelines than workers": (replicas_of_more, "worker 2 is not in 0..1"),
    "shares that do not sum": (unlike_sums, "cut 1 sums to 3 units, cut 0 to "),
    "more shares than members": (lambda plan: layout(plan).update(cuts=[[2, 1, 1]]),
                                 "a group of 2 workers has layout 0, which is for 3"),
    "no shares": (lambda plan: layout(plan).update(cuts=[[0, 0]]), "expected 1 to "),
    "a share of -1": (lambda plan: layout(plan).update(cuts=[[2, -1]]), "cuts[0][1]: expected an integer from 0 to "),
    "units that do not divide a tensor": (lambda plan: placed(plan, "layers.0.attention.query.weight").update(unit=7),
                                          "is not in whole units of 7"),
    "a dimension that is none": (lambda plan: placed(plan, "head.weight").update(dim=2), "has no dimension 2"),
    "a cut that is none": (lambda plan: placed(plan, "head.weight").update(cut=3), "there is no cut 3 among 1"),
    "a tensor that is none": (lambda plan: layout(plan)["tensors"].update({"layers.9.x": {"placement": "replicate"}}),
                              "the graph has no tensor 'layers.9.x'"),
    "a layout that is none": (lambda plan: stages(plan)[0].update(layout=1), "has layout 1 among 1"),
    "sums in no order of an exact plan": (lambda plan: plan.update(determinism="exact"), "are relaxed, the plan is"),
    "an optimizer of one slice": (lambda plan: plan.update(optimizer="divided"), "the job's optimizer has one slice"),
    "a gap": (lambda plan: stages(plan)[0].update(first_segment=1), "do not continue at 0 of "),
}


def main():
    with Scratch() as folder:
        made = heddle("plan", SMOKE, "--json", "--set", "parallel.tensor=2", "--set", "determinism=relaxed",
                      "--set", "workers=[{name: a}, {name: b}]")
        assert made.returncode == 0, made.stderr
        path, out = os.path.join(folder, "plan.json"), os.path.join(folder, "out")
        for name, (change, says) in FAULTS.items():
            plan = json.loads(made.stdout)
            change(plan)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(plan, file)
            done = heddle("train", SMOKE, "--out", out, "--set", "plan=" + path,
                          "--set", "determinism=relaxed")
            errors = done.stderr.splitlines()
            assert done.returncode == 2 and len(errors) == 1 and done.stdout == "", (name, done)
            assert path in errors[0] and says in errors[0] and not os.path.exists(out), (name, errors)


main()
