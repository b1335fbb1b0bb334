/// \file
/// Prices the exchanges of a stage's group, and the sums of replicas.
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

/// Predicted seconds in which all members of `group` (ascending ranks into `links`) get what each has,
/// shares[i] bytes of group[i].
double GatherSeconds(const comm::LinkTable& links,
                     std::span<const int> group,
                     std::span<const int64_t> shares);

/// Predicted seconds in which each member gets its share of a sum of all, shares[i] bytes.
double ScatterSeconds(const comm::LinkTable& links,
                      std::span<const int> group,
                      std::span<const int64_t> shares);

/// Predicted seconds of an exact sum of `bytes` that all members of `group` get, where group[i] has
/// contributions[i] partial sums: made on their devices if all of these read each other's memory
/// (engine/runtime/exchange/device_sums.h), else by comm's ReduceTree. What a device copies and adds
/// in its own memory is not counted, because it takes little beside reading the others'.
double TreeSumSeconds(const comm::LinkTable& links,
                      std::span<const int> group,
                      std::span<const int> contributions,
                      int64_t bytes);

/// The same of a sum of which group[i] gets shares[i] bytes.
double TreeScatterSeconds(const comm::LinkTable& links,
                          std::span<const int> group,
                          std::span<const int> contributions,
                          std::span<const int64_t> shares);

}  // namespace heddle::planner
