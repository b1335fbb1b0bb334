"""Rows of figures: collected, printed as a table, written as JSON."""
import json
import os
import platform
import statistics


class Rows:
    def __init__(self, task):
        self.task = task
        self.rows = []

    def add(self, case, implementation, ours, metric, value, unit):
        self.rows.append({"task": self.task, "case": case, "implementation": implementation, "ours": ours,
                          "metric": metric, "value": float(f"{value:.6g}"), "unit": unit})

    def print_table(self):
        head = ("case", "implementation", "metric", "value", "unit")
        lines = [head] + [(" ".join(f"{key}={value}" for key, value in row["case"].items()), row["implementation"],
                           row["metric"], f"{row['value']:.4g}", row["unit"]) for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        print()
        for number, line in enumerate(lines):
            print("  ".join(field.rjust(width) if i == 3 else field.ljust(width)
                            for i, (field, width) in enumerate(zip(line, widths))).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))
        print(flush=True)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.rows, file, indent=1)
            file.write("\n")


def say(text):
    print(text, flush=True)


def median(values):
    return statistics.median(values)


def spread(values):
    """Largest distance from the median, as a share of it."""
    middle = median(values)
    return max(abs(value - middle) for value in values) / middle if middle else 0.0


def print_machine():
    """Figures belong to a machine and to what else it does."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    say(f"{name}, {cores} cores, load {load:.1f}")
    if load > 0.5:
        say("warning: the machine is not idle; times of all implementations are longer than they would be")


def busy_share(before, after):
    """Share of all cores' time that was not idle between two readings of cpu_times()."""
    total = sum(after) - sum(before)
    idle = after[3] + after[4] - before[3] - before[4]
    return 1 - idle / total if total else 0.0


def cpu_times():
    with open("/proc/stat", encoding="ascii") as lines:
        return [int(field) for field in lines.readline().split()[1:9]]
