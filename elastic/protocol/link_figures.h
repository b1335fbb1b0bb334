/// \file
/// What workers and coordinator agree on about measured links, whoever says it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// One measurement is of no more transports: each of them takes a generation's number of the two
/// workers' groups, and the requests of a coordinator are so many numbers apart.
inline constexpr int kMostMeasuredTransports = 8;

/// Whether these can be a link's figures, so that sums and quotients of them mean something: at
/// most an hour of latency, and between one byte and 1e15 bytes a second. Pure.
constexpr bool IsLinkSound(double latency_seconds, double bytes_per_second) {
  return latency_seconds > 0 && latency_seconds <= 3600 && bytes_per_second >= 1 &&
         bytes_per_second <= 1e15;
}

/// What two workers found of the links between them: the transports, of those named, whose both
/// directions have sound figures. `there` is the answer of the first of the pair.
std::vector<wire::Links::Transport> JoinAnswers(const wire::LinksMeasured& there,
                                                const wire::LinksMeasured& back,
                                                const std::vector<std::string>& transports);

/// Adds what joins the places `a` and `b`, told from a to b, in whichever order Links has them.
void AddPair(int32_t a,
             int32_t b,
             const std::vector<wire::Links::Transport>& transports,
             wire::Links& links);

}  // namespace heddle::elastic
