"""What the figures of the task `checkpoint` come to: ratios, each with the goal it is held against."""
from support import report

KINDS = ("master", "exp_avg", "exp_avg_sq", "weight")
UNCOMPRESSED = ("torch.save", "dcp", "safetensors")
CODEC_GOALS = {"master": (2.0, 4.0), "exp_avg": (2.0, 4.0), "exp_avg_sq": (1.0, 2.5), "weight": (1.4, 3.5)}  # GB/s


class Figures:
    """What each call answered, by operation and implementation."""

    def __init__(self):
        self.answers = {}

    def add(self, operation, name, answer):
        self.answers.setdefault((operation, name), []).append(answer)

    def has(self, operation, name):
        return (operation, name) in self.answers

    def median(self, operation, name, field="seconds"):
        return report.median([answer[field] for answer in self.answers[operation, name]])

    def names(self, operation):
        return [name for one, name in self.answers if one == operation]

    def fastest(self, operation, names):
        """Seconds, or None when none of them was measured."""
        return min((self.median(operation, name) for name in names if self.has(operation, name)), default=None)

    def rate(self, operation, name, size, field="seconds"):
        """10^9 bytes a second."""
        return size / self.median(operation, name, field) / 1e9


def save_goals(figures, raw, threads):
    ours = figures.median("save", "heddle")
    disk = figures.rate("save", "plain", raw)
    fastest = figures.fastest("save", UNCOMPRESSED)
    if fastest:
        yield "save", "over_fastest", ours / fastest, "<=", 1.0 if disk / threads <= 1 else 1.25
    if figures.has("save", "dcp-zstd"):
        yield "save", "over_dcp_zstd", ours / figures.median("save", "dcp-zstd"), "<=", 0.5
    if figures.has("save", "h5py-gzip"):
        cpu = figures.median("save", "heddle", "processor")
        yield "save", "gzip_processor_over_ours", figures.median("save", "h5py-gzip", "processor") / cpu, ">=", 20
    for name, metric, goal in (("heddle", "size", 0.83), ("heddle-derived", "size_derived", 0.73)):
        if figures.has("save", name):
            yield "save", metric, figures.median("save", name, "bytes") / raw, "<=", goal


def load_goals(figures):
    other = figures.median("load other", "heddle")
    fastest = figures.fastest("load same", ("torch.save", "dcp"))
    if fastest:
        yield "load", "other_plan_over_fastest", other / fastest, "<=", 0.85
    yield "load", "other_plan_over_same", other / figures.median("load same", "heddle"), "<=", 1.15


def stall_goals(figures):
    ours = figures.median("stall", "heddle")
    deferred = figures.median("stall", "heddle-deferred")
    if figures.has("stall", "dcp-async"):
        yield "stall", "over_dcp_async", ours / figures.median("stall", "dcp-async"), "<=", 0.35
        yield "stall", "deferred_over_dcp_async", deferred / figures.median("stall", "dcp-async"), "<=", 0.35
    if figures.has("copy", "memory"):
        yield "stall", "over_copy", ours / figures.median("copy", "memory"), "<=", 1.3


def codec_goals(figures):
    for kind in KINDS:
        for operation, goal in zip(("encode", "decode"), CODEC_GOALS[kind]):
            raw = figures.median(operation, kind, "raw")
            yield "codec", f"{operation} {kind}", figures.rate(operation, kind, raw, "processor"), ">=", goal


def all_goals(figures, raw, threads):
    """(operation, metric, value, sense, goal) of all that was measured."""
    if figures.has("save", "heddle") and figures.has("save", "plain"):
        yield from save_goals(figures, raw, threads)
    if figures.has("load other", "heddle"):
        yield from load_goals(figures)
    if figures.has("stall", "heddle") and figures.has("stall", "heddle-deferred"):
        yield from stall_goals(figures)
    if all(figures.has("decode", kind) for kind in KINDS):
        yield from codec_goals(figures)
        if figures.has("size", "entropy"):
            encoded = sum(figures.median("encode", kind, "bytes") for kind in KINDS)
            yield "size", "over_entropy", encoded / figures.median("size", "entropy", "bytes"), "<=", 1.01


def judge(figures, rows, raw, threads):
    """Adds the ratios to the rows and prints each beside its goal."""
    for operation, metric, value, sense, goal in all_goals(figures, raw, threads):
        met = value <= goal if sense == "<=" else value >= goal
        rows.add({"operation": operation}, "heddle", True, metric, value, "GB/s" if operation == "codec" else "ratio")
        report.say(f"{operation} {metric}: {value:.3f} (goal {sense} {goal:g}): {'met' if met else 'MISSED'}")
