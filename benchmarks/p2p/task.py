"""One message to another process of this machine: half of the time of a message there and back.

seconds         median over repetitions of the median over batches of round trips
over_best_peer  time of the fastest peer of the case over ours
"""
from support import exchange


def run(options, rows):
    return exchange.run(options, rows, "p2p", (2,))
