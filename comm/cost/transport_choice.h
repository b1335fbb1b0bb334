/// \file
/// Which transport joins a pair of workers: the one that was measured to be cheapest. Pure, and
/// both ends that hold the same figures choose alike. Model: a message of b bytes takes latency +
/// b / bytes_per_second; what counts is the sum over one message of an activation's size and one of
/// a vote's, each way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/cost/links.h"

namespace heddle::comm {

/// The mix of messages that a transport is judged by.
inline constexpr int64_t kActivationBytes = int64_t{256} << 10;
inline constexpr int64_t kVoteBytes = 8;
/// Shared memory gives way to a transport that the list has after it only where it costs more than
/// so many times as much: on a machine with more workers than cores, what it was measured to cost
/// is mostly the scheduler's. One that the list has before it need only be no dearer.
inline constexpr double kClearlyOfShared = 2;

enum class TransportRule : uint8_t {
  kCheapest,  ///< The cheapest of those that joined the pair when it was measured.
  kFirst,     ///< The first of the list that joins the pair.
};

/// The transports that may join pairs, best first, and how a pair chooses among them.
struct TransportPreference {
  std::vector<std::string> list;
  TransportRule rule = TransportRule::kCheapest;
};

/// What one transport was measured to give two workers, from the one to the other and back.
struct MeasuredTransport {
  std::string transport;
  Link there;
  Link back;
};

/// Mean seconds of the mix over both ways.
double MixSeconds(const MeasuredTransport& measured);

struct TransportChoice {
  std::string transport;           ///< Empty: of an empty list.
  bool cheapest = false;           ///< Chosen by its cost; else by its place in the list.
  std::vector<std::string> order;  ///< `transport`, then what to fall back on: the list's others.
  std::string why;                 ///< For people.
};

/// Of `measured` those count that are in the list; a tie goes to the earlier in the list, and where
/// none is measured the choice is its first.
TransportChoice ChooseTransport(const TransportPreference& preference,
                                std::span<const MeasuredTransport> measured);

}  // namespace heddle::comm
