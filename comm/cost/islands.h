/// \file
/// Which workers form islands: joined by one kind of fast link. Pure.
#pragma once

#include <vector>

#include "comm/cost/cost.h"

namespace heddle::comm {

/// The islands of a table of measured links, each with its members ascending, ordered by their
/// first members; a worker without a fast link is one of its own.
///
/// Single linkage, kind by kind: the kinds of transport are taken in the order of their fastest
/// link. Within a kind the bandwidths of its pairs (the slower direction counts) are sorted, and
/// where two that follow each other differ at least by a factor of two, the widest such gap divides
/// fast links from slow ones. Fast links join their ends into one island; a slower kind joins only
/// workers that no faster kind has joined, because links of two kinds never make one island. A pair
/// without bandwidth is no link.
/// Takes time in proportion to the pairs.
std::vector<std::vector<int>> FindIslands(const LinkTable& links);

}  // namespace heddle::comm
