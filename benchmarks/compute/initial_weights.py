"""Heddle's initial weights, drawn again: element e of a parameter is number e % 4 of the four normal values that
Philox4x32-10 block e / 4 gives, keyed by XXH3(name, seed); base/random.h and engine/graph/initialize.h say the same.
So that a peer starts from the same weights without a file in between."""
import ctypes
import math

import torch

MASK = 0xFFFFFFFF


def stream_key(seed, name):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    library.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    data = name.encode()
    return library.XXH3_64bits_withSeed(data, len(data), seed)


def philox(key, blocks):
    """Words [blocks, 4] as int64; products wrap at 64 bits, so that only the shifts need care."""
    c0 = torch.arange(blocks, dtype=torch.int64)
    c1, c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = key & MASK, key >> 32
    for _ in range(10):
        product0 = c0 * 0xD2511F53
        product1 = c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (((product1 >> 32) & MASK) ^ c1 ^ k0, product1 & MASK,
                          ((product0 >> 32) & MASK) ^ c3 ^ k1, product0 & MASK)
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return torch.stack([c0, c1, c2, c3], dim=1)


def normal(seed, name, shape, deviation):
    count = math.prod(shape)
    words = philox(stream_key(seed, name), (count + 3) // 4).double()
    u = (words[:, 0::2] + 1.0) * 2.0**-32
    angle = 2.0 * math.pi * words[:, 1::2] * 2.0**-32
    radius = deviation * torch.sqrt(-2.0 * torch.log(u))
    values = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=2)
    return values.reshape(-1)[:count].reshape(shape).float()
