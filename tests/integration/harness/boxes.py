"""What each worker of a plan has of the served model's parameters: written from the documents of plan files and sharded
layers, to check what the program says of its state."""

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KEY_VALUE_HEADS, VOCABULARY = 64, 160, 3, 4, 2, 256
BYTES = 12  # Of an element in fp32: the master weight and two moments.


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


def covered(plan, survivors):
    """Whether the survivors of a plan have every element of the state between them."""
    parts = held(plan)
    for name, (_, shape) in parameters().items():
        there = set()
        for worker in survivors & set(parts):
            if name in parts[worker]:
                there |= elements(shape, parts[worker][name])
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if len(there) != size:
            return False
    return True


def least_moved(before, after, survivors):
    """Bytes that workers of `after` lack of what they have of `before`."""
    old, missing = held(before), 0
    for worker, parts in held(after).items():
        for name, part in parts.items():
            shape = parameters()[name][1]
            mine = old.get(worker, {}).get(name) if worker in survivors else None
            missing += len(elements(shape, part) - (elements(shape, mine) if mine else set()))
    return BYTES * missing
