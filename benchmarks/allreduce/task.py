"""Sum of fp32 vectors over processes of one machine, in place: time of one call at the slowest rank.

seconds         median over repetitions of the median over batches of calls back to back
over_best_peer  time of the fastest peer of the case over ours
"""
from support import exchange


def run(options, rows):
    return exchange.run(options, rows, "allreduce", (2, 4))
