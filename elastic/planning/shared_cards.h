/// \file
/// How workers on one card divide its memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/program/profile.h"

namespace heddle::elastic {

/// What a worker takes beside state and values on a card that it shares: its context, and what its
/// libraries use for themselves. That of one worker is not in CardPart::bytes.
inline constexpr int64_t kCardOverheadBytes = int64_t{3} << 29;

/// The card that a worker computes on.
struct CardPart {
  std::string host;
  std::string card;   ///< By a name that no other card of the host has; empty: none.
  int64_t bytes = 0;  ///< What the worker may use of its memory if it is alone on it.
};

/// Divides the memory of each card of several workers among them: sets the memory_bytes of their
/// profiles, which are in the order of `parts`. A worker whose memory is given, so that it is less
/// than it could have alone, keeps it; the others have equal parts of what is left after the
/// kCardOverheadBytes of every worker but one. The card's memory is the most that one of them saw,
/// because those that came later found it in use by the others.
void DivideCards(const std::vector<CardPart>& parts, std::vector<program::WorkerProfile>& workers);

}  // namespace heddle::elastic
