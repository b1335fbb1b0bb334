#!/usr/bin/env python3
"""docs/reference is complete: it lists what the sources have, and nothing else.

| document | lists |
|---|---|
| job-file.md | every key that engine/job reads, by its whole path |
| events.md | every event of elastic, with its fields |
| metrics.md | every metric of the sources |
| environment.md | every environment variable that the programs read |
| status.md | every field of JobStatus in elastic's protocol |
| plan-file.md | every key of a plan in engine/program |
| operators.md | every operator in engine/graph/ops |
| limits.md | every limit that `heddle config` shows, and every duration of the control plane, as a limit or as a pace |
| ../operate/monitoring.md | every alert of metrics/alerts.yml |

scripts/reference --check compares subcommands and options with the program.

Usage: reference.py [--source FOLDER]
Prints "path:line: error: …" and exits with 1 when something is wrong.
"""
import argparse
import pathlib
import re
import sys

PRODUCT = ("base", "metrics", "comm", "checkpoint", "planner", "engine", "elastic", "cli")
CONTROL_PLANE = tuple(f"elastic/{module}" for module in (
    "protocol", "control", "member", "grpc", "store", "launcher", "report", "service"))
LITERAL = re.compile(r"""\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'""")
READS = (r"(?:Required|Optional|RequiredChoice|OptionalChoice|RequiredPath|OptionalPath|PathList|List|Child"
         r"|OptionalChild|Children)")


def listed(path, header):
    """{name: line number} of what the first cells name in those tables of a document whose first column is `header`."""
    names, column = {}, None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            column = None
            continue
        cell = line.split("|")[1].strip()
        column = column or cell
        if column == header:
            names.update((name, number) for name in re.findall(r"`([^`]+)`", cell))
    return names


def sources(root, folders, suffixes=(".cc", ".h")):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path.read_text(encoding="utf-8")


def balanced(text, start):
    """The text from the opening bracket at `start` to the one that closes it; brackets in literals do not count."""
    shape = LITERAL.sub(lambda literal: "_" * len(literal.group()), text[start:])
    depth = 0
    for position, letter in enumerate(shape):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(letter, 0)
        if depth == 0:
            return text[start:start + position + 1]
    return text[start:]


def key_readers(text):
    """{name: (parameter, body)} of functions whose first parameter is a YamlReader, and of the one with the root."""
    found = {}
    for match in re.finditer(r"\b(\w+)\((?:YamlReader&? (\w+)|YamlDocument \w+)[^)]*\) \{", text):
        found[match.group(1)] = (match.group(2), balanced(text, match.end() - 1))
    return found


def job_keys(root):
    """Key paths that the readers of engine/job read, followed from the document's root through every function."""
    readers = {}
    for text in sources(root, ("engine/job",)):
        readers.update(key_readers(text))
    keys = set()

    def join(prefix, key):
        return f"{prefix}.{key}" if prefix else key

    def follow(body, prefixes):
        for variable, parent, key in re.findall(
                r"YamlReader (\w+) = (\w+)\.(?:Child|OptionalChild)\(\s*\"(\w+)\"", body):
            prefixes[variable] = join(prefixes[parent], key)
        for variable in re.findall(r"YamlReader (\w+) = \w+\.Root\(\)", body):
            prefixes[variable] = ""
        for variable, parent, key in re.findall(r"YamlReader& (\w+) : (\w+)\.Children\(\"(\w+)\"\)", body):
            prefixes[variable] = join(prefixes[parent], key) + "[]"
        for variable, key, below in re.findall(rf"\b(\w+)\s*\.{READS}(?:<[\w:]+>)?\(\s*\"(\w+)\""
                                               rf"(?:\)\.{READS}(?:<[\w:]+>)?\(\s*\"(\w+)\")?", body):
            keys.add(join(prefixes[variable], key))
            if below:
                keys.add(join(join(prefixes[variable], key), below))
        for name, variable, key in re.findall(
                r"\b(\w+)\(\s*(\w+)(?:\.(?:Child|OptionalChild)\(\"(\w+)\"\))?[,)]", body):
            if name in readers and variable in prefixes:
                parameter, inner = readers[name]
                follow(inner, {parameter: join(prefixes[variable], key) if key else prefixes[variable]})

    for parameter, body in readers.values():
        if parameter is None:
            follow(body, {})
    return keys


def events(root):
    """{name: fields} of what elastic logs."""
    found = {}
    for text in sources(root, ("elastic",)):
        for match in re.finditer(r"\bLog\(\s*\"(\w+)\"|\.kind = \"(\w+)\"", text):
            opening = max(text.rfind("(", 0, match.start() + 4), text.rfind("{", 0, match.start() + 4))
            fields = re.findall(r"\{\s*\"(\w+)\"\s*,", balanced(text, opening))
            found.setdefault(match.group(1) or match.group(2), set()).update(fields)
    return found


def listed_fields(path):
    """{name: fields} of the table of events; text in brackets explains a field."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.fullmatch(r"`(\w+)`", cells[0])
        if name and len(cells) == 3:
            found[name.group(1)] = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cells[1])))
    return found


def literals(root, folders, pattern):
    return {name for text in sources(root, folders) for name in re.findall(rf"\"({pattern})\"", text)}


def operators(root):
    return {name for text in sources(root, ("engine/graph/ops",))
            for name in re.findall(r"\bname\(\) const override \{\s*return \"(\w+)\"", text)}


def status_fields(root):
    fields = set()
    for text in sources(root, ("elastic",), (".proto",)):
        start = text.find("message JobStatus {")
        if start >= 0:
            fields.update(re.findall(r"^\s*(?:repeated |optional )?(?:map<[^>]*>|\w+) (\w+) = \d+;",
                                     balanced(text, text.find("{", start)), re.MULTILINE))
    return fields


def plan_keys(root):
    keys = set()
    for text in sources(root, ("engine/program",), (".cc",)):
        for function in re.finditer(r"Json ToJson\(const [\w:]+& \w+\) \{|std::string PlanToJson\([^)]*\) \{", text):
            keys.update(re.findall(r"(?:\{\s*|\bjson\[)\"(\w+)\"\s*[,\]]", balanced(text, function.end() - 1)))
    return keys


def limits(root):
    """Names of the limits that `heddle config` shows."""
    names = set()
    for path in ("control/limits.cc", "protocol/service_limits.h", "service/inspect/limits_in_force.cc"):
        path = root / "elastic" / path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        names.update(re.findall(r"(?:^    |push_back\(|ServiceLimit)\{\"([\w.]+)\",", text, re.MULTILINE))
    return names


def durations(root):
    """Names of constants and fields of the control plane that are given a duration, in lower case: kPlanTimeout is
    plan_timeout."""
    names = set()
    for text in sources(root, CONTROL_PLANE):
        for name, value in re.findall(r"\bDuration (\w+) ?(?:=|\{)([^;]*);", text):
            if re.search(r"(?:milliseconds|seconds|minutes|hours)\(|\bk[A-Z]\w+", value):
                plain = re.sub(r"^k(?=[A-Z])|_$", "", name)
                names.add(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain).lower())
    return names


def duration_problems(root):
    page = root / "docs/reference/limits.md"
    known = {name.split(".")[-1] for name in listed(page, "limit")}
    paces, there = listed(page, "pace"), durations(root)
    for name in sorted(there - known - set(paces)):
        yield f"docs/reference/limits.md:1: error: the duration {name} of the sources is neither a limit nor a pace"
    for name in sorted(set(paces) - there):
        yield f"docs/reference/limits.md:{paces[name]}: error: lists the pace {name}, which no source has"


def problems_of(root):
    reference = root / "docs/reference"
    logged, written = events(root), listed_fields(reference / "events.md")
    held = (
        ("job-file.md", "key", job_keys(root)),
        ("events.md", "event", set(logged)),
        ("metrics.md", "name", literals(root, PRODUCT, r"heddle_\w+")),
        ("environment.md", "variable",
         literals(root, PRODUCT, r"(?:HEDDLE|AWS|MPI|OMPI|SLURM|PMIX?|XDG)_[A-Z0-9_]+|TMPDIR|HOME")),
        ("status.md", "field", status_fields(root)),
        ("plan-file.md", "key", plan_keys(root)),
        ("operators.md", "operator", operators(root)),
        ("limits.md", "limit", limits(root)),
        ("../operate/monitoring.md", "alert",
         set(re.findall(r"- alert: (\w+)", (root / "metrics/alerts.yml").read_text(encoding="utf-8")))),
    )
    for document, header, there in held:
        shown = (reference / document).resolve().relative_to(root)
        names = listed(reference / document, header)
        if not there:
            yield f"{shown}:1: error: the sources seem to have no {header}: this check is blind"
        for name in sorted(there - set(names)):
            yield f"{shown}:1: error: does not list {name}"
        for name in sorted(set(names) - there):
            yield f"{shown}:{names[name]}: error: lists {name}, which no source has"
    yield from duration_problems(root)
    for name in sorted(set(logged) & set(written)):
        for field in sorted(logged[name] ^ written[name]):
            what = "does not list" if field in logged[name] else "lists, and no source has,"
            yield f"docs/reference/events.md:1: error: {what} the field {field} of {name}"


def main():
    parser = argparse.ArgumentParser(description="Compare docs/reference with the sources.")
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    problems = list(problems_of(parser.parse_args().source.resolve()))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
