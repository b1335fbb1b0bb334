/// \file
/// Direct placement over RDMA (DirectPlacement in transport.h): one end's device writes from its
/// shared buffers into the other's. Regions are registered when they are first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "comm/transport/transport.h"
#include "comm/transport/verbs/verbs_stream.h"

namespace heddle::comm {

/// Direct placement beside a stream, which it outlives. Thread: that of the stream.
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

  /// Whether the value of `placed` has grown since its last call.
  bool has_news() const { return reported_ != stream_.requests().done().placed; }
  /// Whether the last Place found no room, so that the channel waits to place, not to write.
  bool waits() const { return waits_; }
  void StopWaiting() { waits_ = false; }

 private:
  /// The registration of a shared region with the device.
  class Registration;

  Result<std::shared_ptr<Registration>> Register(const std::shared_ptr<const SharedRegion>& region);
  Result<size_t> Put(const Registration& registration,
                     std::span<const std::byte> bytes,
                     const RemoteMemory& target);
  void EndRegistrations();

  VerbsStream& stream_;
  /// Registrations by region ID. Each connection has its own, so that revoking one peer's access
  /// leaves that of others.
  std::map<uint64_t, std::shared_ptr<Registration>> registrations_;
  uint64_t reported_ = 0;  ///< Value of the last call of `placed`.
  bool waits_ = false;
};

}  // namespace heddle::comm
