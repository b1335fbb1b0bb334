/// \file
/// Prices the exchanges of a stage's group.
#pragma once

#include <cstdint>
#include <span>

#include "comm/cost/links.h"
#include "engine/graph/sharding/sharded_graph.h"

namespace heddle::planner {

/// Whether members send each other something in an exchange of this form.
bool Communicates(graph::ExchangeForm form);

/// Predicted seconds of an exchange among `group` (ranks into `links`) of which a member has `sent`
/// bytes before and `received` bytes after. Precondition: it communicates.
double ExchangeSeconds(const comm::LinkTable& links,
                       std::span<const int> group,
                       const graph::Exchange& exchange,
                       int64_t sent,
                       int64_t received);

}  // namespace heddle::planner
