/// \file
/// Figures of measured links, as workers and the coordinator both read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// The most transports of one measurement. Each takes one generation number for the group of the
/// two workers, and the numbers of a coordinator's requests are this far apart.
inline constexpr int kMaxMeasuredTransports = 8;

/// True if these can be the figures of a link, so that sums and quotients of them are meaningful: a
/// latency of more than 0 and at most an hour, and 1 to 1e15 bytes per second. Pure.
constexpr bool IsLinkSound(double latency_seconds, double bytes_per_second) {
  return latency_seconds > 0 && latency_seconds <= 3600 && bytes_per_second >= 1 &&
         bytes_per_second <= 1e15;
}

/// Joins the replies of two workers: those of `transports` that have sound figures in both
/// directions. `there` is the reply of the first worker of the pair.
std::vector<wire::Links::Transport> JoinAnswers(const wire::LinksMeasured& there,
                                                const wire::LinksMeasured& back,
                                                const std::vector<std::string>& transports);

/// Adds the pair of places `a` and `b` to `links`. `transports` are as seen from a to b; they are
/// turned if b < a.
void AddPair(int32_t a,
             int32_t b,
             const std::vector<wire::Links::Transport>& transports,
             wire::Links& links);

}  // namespace heddle::elastic
