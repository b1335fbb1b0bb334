"""What each worker of a plan has of the served model's parameters: written from the documents of plan files and sharded
layers, to check what the program says of its state."""

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KEY_VALUE_HEADS, VOCABULARY = 64, 160, 3, 4, 2, 256
BYTES = 12  # Of an element in fp32: the master weight and two moments.
SLICES = 64  # Of each matrix, in a job that divides the optimizer.


def parameters():
    """By name: (segment, shape). Segments are the embedding, attention and MLP of each layer, and the head."""
    key_value = HIDDEN * KEY_VALUE_HEADS // HEADS
    found = {"embedding.weight": (0, (VOCABULARY, HIDDEN)),
             "head.norm.weight": (2 * LAYERS + 1, (HIDDEN,)),
             "head.weight": (2 * LAYERS + 1, (VOCABULARY, HIDDEN))}
    for layer in range(LAYERS):
        for part, rows, columns in (("query", HIDDEN, HIDDEN), ("key", key_value, HIDDEN), ("value", key_value, HIDDEN),
                                    ("output", HIDDEN, HIDDEN)):
            found[f"layers.{layer}.attention.{part}.weight"] = (1 + 2 * layer, (rows, columns))
        for part, rows, columns in (("gate", INTERMEDIATE, HIDDEN), ("up", INTERMEDIATE, HIDDEN),
                                    ("down", HIDDEN, INTERMEDIATE)):
            found[f"layers.{layer}.mlp.{part}.weight"] = (2 + 2 * layer, (rows, columns))
        for half, segment in (("attention", 1 + 2 * layer), ("mlp", 2 + 2 * layer)):
            found[f"layers.{layer}.{half}.norm.weight"] = (segment, (HIDDEN,))
    return found


def part_of(shape, placed, cuts, position):
    """(dimension, first, last) of the elements that a position has; the whole: (0, 0, extent)."""
    if placed is None or placed["placement"] == "replicate":
        return 0, 0, shape[0]
    dim, unit, cut = placed["dim"], placed["unit"], cuts[placed["cut"]]
    units, total = shape[dim] // unit, sum(cut)
    of = placed["covered"] if placed["placement"] == "cover" else units
    first, last = (of * sum(cut[:until]) // total for until in (position, position + 1))
    if placed["placement"] == "cover" and first < last:
        first, last = first * units // of, -(-last * units // of)
    return dim, first * unit, last * unit


def held(plan):
    """By worker's name: {parameter: its part}, empty parts left out."""
    found = {name: {} for name in plan["workers"]}
    for pipeline in plan["pipelines"]:
        for stage in pipeline["stages"]:
            group = stage.get("group", [stage.get("worker")])
            layout = plan["layouts"][stage["layout"]] if len(group) > 1 else {"cuts": [], "tensors": {}}
            for position, rank in enumerate(group):
                for name, (segment, shape) in parameters().items():
                    if stage["first_segment"] <= segment < stage["last_segment"]:
                        part = part_of(shape, layout["tensors"].get(name), layout["cuts"], position)
                        if part[1] < part[2]:
                            found[plan["workers"][rank]][name] = part
    return found


def elements(shape, part):
    """The places of the part's elements."""
    dim, first, last = part
    if len(shape) == 1 or dim == 0:
        width = 1 if len(shape) == 1 else shape[1]
        return set(range(first * width, last * width))
    return {row * shape[1] + column for row in range(shape[0]) for column in range(first, last)}


def runs_of_rows(shape, parts):
    """[(rank, its run of rows of a part)] where the holders of each part of a matrix divide its rows, in whole slices.
    `parts`: by rank. Parts begin and end where any rank's does."""
    [dim] = {part[0] for part in parts.values() if part != (0, 0, shape[0])} or {0}
    ranges = {rank: part[1:] if part != (0, 0, shape[0]) else (0, shape[dim]) for rank, part in parts.items()}
    edges = sorted({edge for ends in ranges.values() for edge in ends})
    for first, last in zip(edges, edges[1:]):
        holders = sorted(rank for rank, ends in ranges.items() if ends[0] <= first and last <= ends[1])
        rows, above = (last - first, first) if dim == 0 else (shape[0], 0)
        columns = range(shape[1]) if dim == 0 else range(first, last)
        for number, rank in enumerate(holders):
            begin, end = (above + rows * (SLICES * many // len(holders)) // SLICES for many in (number, number + 1))
            yield rank, {row * shape[1] + column for row in range(begin, end) for column in columns}


def kept(plan):
    """By worker's name: {parameter: the places of the elements whose master and moments it keeps}."""
    parts, found = held(plan), {name: {} for name in plan["workers"]}
    for name, (_, shape) in parameters().items():
        holders = {rank: parts[worker][name] for rank, worker in enumerate(plan["workers"]) if name in parts[worker]}
        if plan.get("optimizer") == "divided" and len(shape) > 1:
            pieces = runs_of_rows(shape, holders)
        else:
            pieces = [(rank, elements(shape, part)) for rank, part in holders.items()]
        for rank, places in pieces:
            found[plan["workers"][rank]].setdefault(name, set()).update(places)
    return found


def covered(plan, survivors):
    """Whether the survivors of a plan have every element of the state between them."""
    parts = kept(plan)
    for name, (_, shape) in parameters().items():
        there = set().union(*(parts[worker].get(name, set()) for worker in survivors & set(parts)))
        if len(there) != shape[0] * (shape[1] if len(shape) > 1 else 1):
            return False
    return True


def least_moved(before, after, survivors):
    """Bytes that workers of `after` lack of what they have of `before`."""
    old, missing = kept(before), 0
    for worker, parts in kept(after).items():
        for name, places in parts.items():
            mine = old.get(worker, {}).get(name, set()) if worker in survivors else set()
            missing += len(places - mine)
    return BYTES * missing
