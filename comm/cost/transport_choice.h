/// \file
/// Chooses the transport that joins a pair of workers: the one that was measured to be cheapest.
/// Pure; both ends with the same measurements make the same choice. Model: a message of b bytes
/// takes latency + b / bytes_per_second; the cost is the sum over one message of an activation's
/// size and one of a vote's size, averaged over both directions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/cost/links.h"

namespace heddle::comm {

/// Sizes of the two messages by which a transport is judged.
inline constexpr int64_t kActivationBytes = int64_t{256} << 10;
inline constexpr int64_t kVoteBytes = 8;
/// A transport that is after shared memory in the list is chosen instead only if shared memory
/// costs more than this many times as much, because on a machine with more workers than cores its
/// measured cost is mostly that of the scheduler. A transport before it in the list need only cost
/// no more.
inline constexpr double kClearlyOfShared = 2;

enum class TransportRule : uint8_t {
  kCheapest,  ///< The cheapest transport that joined the pair when it was measured.
  kFirst,     ///< The first transport of the list that joins the pair.
};

/// The transports that may join pairs, best first, and how a pair chooses among them.
struct TransportPreference {
  std::vector<std::string> list;
  TransportRule rule = TransportRule::kCheapest;
};

/// The measured links of one transport between two workers.
struct MeasuredTransport {
  std::string transport;
  Link there;  ///< From the first worker to the second.
  Link back;   ///< From the second worker to the first.
};

/// The cost in seconds of a message of kActivationBytes and one of kVoteBytes, averaged over both
/// directions.
double MixSeconds(const MeasuredTransport& measured);

struct TransportChoice {
  std::string transport;           ///< The chosen transport; empty: the list is empty.
  bool cheapest = false;           ///< Chosen by its cost; else by its place in the list.
  std::vector<std::string> order;  ///< `transport`, then the list's others, as fallbacks.
  std::string why;                 ///< The reason, as text for users.
};

/// Chooses the transport of a pair. Only transports of `measured` that are in the list count; a tie
/// goes to the earlier one in the list. If none is measured, the choice is the first of the list.
TransportChoice ChooseTransport(const TransportPreference& preference,
                                std::span<const MeasuredTransport> measured);

}  // namespace heddle::comm
