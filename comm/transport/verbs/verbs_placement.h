/// \file
/// Direct placement over RDMA (transport.h): shared buffers, registered by region when they are
/// first used, are written by one end's device into the other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "comm/transport/transport.h"
#include "comm/transport/verbs/verbs_stream.h"

namespace heddle::comm {

/// Beside a stream, which it outlives. Thread: the stream's.
class VerbsPlacement final : public DirectPlacement {
 public:
  explicit VerbsPlacement(VerbsStream& stream) : stream_(stream) {}
  virtual ~VerbsPlacement();
  VerbsPlacement(const VerbsPlacement&) = delete;
  VerbsPlacement& operator=(const VerbsPlacement&) = delete;

  Result<RemoteMemory> Expose(const std::shared_ptr<const SharedRegion>& region,
                              std::span<std::byte> bytes) override;
  Status Prepare(const std::shared_ptr<const SharedRegion>& region) override;
  Result<size_t> Place(const std::shared_ptr<const SharedRegion>& region,
                       std::span<const std::byte> bytes,
                       const RemoteMemory& target) override;
  uint64_t placed() override { return reported_ = stream_.requests().done().placed; }
  void Withdraw() override;

  /// Whether `placed` has grown since the channel has asked.
  bool has_news() const { return reported_ != stream_.requests().done().placed; }
  /// What found no room last is to be placed, not written into the stream.
  bool waits() const { return waits_; }
  void StopWaiting() { waits_ = false; }

 private:
  /// A shared region as the device knows it.
  class Registration;

  Result<std::shared_ptr<Registration>> Register(const std::shared_ptr<const SharedRegion>& region);
  Result<size_t> Put(const Registration& registration,
                     std::span<const std::byte> bytes,
                     const RemoteMemory& target);
  void EndRegistrations();

  VerbsStream& stream_;
  /// By the region's number. Each connection's own, so that what one peer is refused, another still
  /// has.
  std::map<uint64_t, std::shared_ptr<Registration>> registrations_;
  uint64_t reported_ = 0;  ///< Bytes placed, as the channel knows it.
  bool waits_ = false;
};

}  // namespace heddle::comm
