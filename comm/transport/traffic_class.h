/// \file
/// Traffic classes. A pair of members has two connections, one for each class. Urgent messages
/// (activations, barriers, abort notifications) have their own connection, because no order of
/// sending helps a message that is behind bulk in a socket, a ring or a queue pair. Sender and
/// receiver must agree beforehand whether a message is urgent.
///
/// Each class is a Channel over a Connection of its own, and a thread that waits for a message
/// drives only the message's class (driver.h). The two classes fail together: a group is formed
/// when both connections of all pairs are up, and ends a pair's operations when one of the two
/// breaks (group.h).
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

/// Counts of one pair's frames so far, by traffic class, modulo 2^16. They show whether all frames
/// that the peer sent on one traffic class before a message of the other have arrived. Far fewer
/// than 2^15 frames can be in flight: the smallest are those in the eager window, which holds fewer
/// than 22,000.
struct FrameCounts {
  std::array<std::atomic<uint16_t>, kTrafficClasses> sent{};      ///< Frames begun.
  std::array<std::atomic<uint16_t>, kTrafficClasses> received{};  ///< Frames received in whole.
};
/// Whether the first `sent` frames are among the first `received` frames.
constexpr bool HasCome(uint16_t sent, uint16_t received) {
  return static_cast<int16_t>(static_cast<uint16_t>(received - sent)) >= 0;
}

}  // namespace heddle::comm
