/// \file
/// A pair of members has two connections, its lanes. What is urgent (activations, barriers, news of
/// an abort) has one for itself, because no order of sending helps a message that stands behind
/// bulk already handed to a socket, a ring or a queue pair. A message's lane is chosen by its
/// sender and known to its receiver beforehand: both ends say whether it is urgent.
///
/// Each lane is a Channel over a Connection of its own, and what waits for a lane's messages drives
/// that lane alone (driver.h). The lanes fail together: a group is formed when all lanes of all
/// pairs are up, and ends a pair's operations when one of them breaks (group.h).
///
/// Descriptors that a worker holds for each peer, both lanes together: 2 over TCP (with n streams
/// n + 2), 6 over shared memory, 2 over MPI, 8 over RDMA (10 over iWARP). Pairs are connected only
/// where the plan uses them, so 1,000 descriptors are enough for more than a hundred peers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::comm {

enum class Lane : uint8_t { kBulk = 0, kUrgent = 1 };

inline constexpr size_t kLanes = 2;
inline constexpr std::array<Lane, kLanes> kEachLane = {Lane::kUrgent, Lane::kBulk};

constexpr Lane LaneOf(bool urgent) {
  return urgent ? Lane::kUrgent : Lane::kBulk;
}
constexpr Lane OtherLane(Lane lane) {
  return LaneOf(lane == Lane::kBulk);
}
constexpr size_t IndexOf(Lane lane) {
  return static_cast<size_t>(lane);
}

/// Frames of one pair so far, by lane, modulo 2^16: what tells whether all that the peer sent
/// before a message of one lane has come on the other, too. Far fewer than 2^15 frames can be under
/// way: the window of small messages holds the fewest bytes a frame, and not 22,000 of them.
struct FrameCounts {
  std::array<std::atomic<uint16_t>, kLanes> sent{};      ///< Begun.
  std::array<std::atomic<uint16_t>, kLanes> received{};  ///< Come in whole.
};
/// Whether the first `sent` frames are among the first `received`.
constexpr bool HasCome(uint16_t sent, uint16_t received) {
  return static_cast<int16_t>(static_cast<uint16_t>(received - sent)) >= 0;
}

}  // namespace heddle::comm
