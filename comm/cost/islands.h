/// \file
/// Finds islands: sets of workers joined by one kind of fast link. Pure.
#pragma once

#include <vector>

#include "comm/cost/cost.h"

namespace heddle::comm {

/// The islands of a table of measured links, each with its members ascending, ordered by their
/// first members; a worker without a fast link is an island of its own.
///
/// The method is single linkage, for one kind of transport after the other, in the order of their
/// fastest links. The bandwidths of a kind's pairs (of the slower direction) are sorted; the widest
/// gap of at least a factor of two between consecutive values divides fast links from slow ones.
/// Fast links join their ends into one island. A slower kind joins only workers that no faster kind
/// has joined, because links of two kinds never form one island. A pair without bandwidth is no
/// link. Takes time proportional to the number of pairs.
std::vector<std::vector<int>> FindIslands(const LinkTable& links);

}  // namespace heddle::comm
