/// \file
/// The control connection: limits that both ends agree on, and how one is made.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace grpc {
class Channel;
}  // namespace grpc

namespace heddle::elastic {

/// Largest message: a plan for thousands of devices, a checkpoint's part.
inline constexpr int kMaxMessageBytes = 64 << 20;
/// Messages that wait for a slow peer; beyond that its stream is cut.
inline constexpr size_t kMaxQueuedMessages = 8192;
/// A silent peer is pinged after so long, and given up when the ping is not answered in as long
/// again.
inline constexpr std::chrono::milliseconds kKeepalive{2000};

/// gRPC's own lines go to our log at debug level: what matters of them comes as a Status.
/// Idempotent.
void QuietGrpc();

/// A connection of its own to `coordinator` (HOST:PORT), made on first use, with no back-off but
/// the caller's.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator);

}  // namespace heddle::elastic
