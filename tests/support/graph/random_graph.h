/// \file
/// Random small training graphs, for tests that must hold for every graph.
#pragma once

#include <cstdint>

#include "engine/graph/graph.h"

namespace heddle::testing {

/// A differentiated transformer-like graph, a function of (seed, compute): random dimensions, 3 to
/// 10 segments, in each a random chain of norms, linear layers with and without bias, rotary
/// positions, grouped-query attention, SwiGLU and GELU, with a residual connection inside the
/// segment; learned positions or none; tied or untied head. Never dropout. One activation crosses
/// each cut point, and one gradient back. A few thousand to some ten thousand parameters; batch 1
/// to 3, sequence 2 to 6, vocabulary 5 to 24.
graph::Graph RandomGraph(uint64_t seed, DType compute);

}  // namespace heddle::testing
