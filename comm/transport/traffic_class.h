/// \file
/// A pair of members has two connections, one for each traffic class. What is urgent (activations,
/// barriers, news of an abort) has one for itself, because no order of sending helps a message that
/// stands behind bulk already handed to a socket, a ring or a queue pair. A message's class is
/// chosen by its sender and known to its receiver beforehand: both ends say whether it is urgent.
///
/// Each class is a Channel over a Connection of its own, and what waits for a class's messages
/// drives that class alone (driver.h). The two fail together: a group is formed when both of all
/// pairs are up, and ends a pair's operations when one of them breaks (group.h).
///
/// Descriptors that a worker holds for each peer, both classes together: 2 over TCP (with n streams
/// n + 2), 6 over shared memory, 2 over MPI, 8 over RDMA (10 over iWARP). Pairs are connected only
/// where the plan uses them, so 1,000 descriptors are enough for more than a hundred peers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::comm {

enum class TrafficClass : uint8_t { kBulk = 0, kUrgent = 1 };

inline constexpr size_t kTrafficClasses = 2;
inline constexpr std::array<TrafficClass, kTrafficClasses> kEachTrafficClass = {
    TrafficClass::kUrgent, TrafficClass::kBulk};

constexpr TrafficClass TrafficClassOf(bool urgent) {
  return urgent ? TrafficClass::kUrgent : TrafficClass::kBulk;
}
constexpr TrafficClass OtherTrafficClass(TrafficClass traffic_class) {
  return TrafficClassOf(traffic_class == TrafficClass::kBulk);
}
constexpr size_t IndexOf(TrafficClass traffic_class) {
  return static_cast<size_t>(traffic_class);
}

/// Frames of one pair so far, by traffic class, modulo 2^16: what tells whether all that the peer
/// sent before a message of one traffic class has come on the other, too. Far fewer than 2^15
/// frames can be under way: the window of small messages holds the fewest bytes a frame, and not
/// 22,000 of them.
struct FrameCounts {
  std::array<std::atomic<uint16_t>, kTrafficClasses> sent{};      ///< Begun.
  std::array<std::atomic<uint16_t>, kTrafficClasses> received{};  ///< Come in whole.
};
/// Whether the first `sent` frames are among the first `received`.
constexpr bool HasCome(uint16_t sent, uint16_t received) {
  return static_cast<int16_t>(static_cast<uint16_t>(received - sent)) >= 0;
}

}  // namespace heddle::comm
