/// \file
/// Limits that both ends of the control connection agree on.
#pragma once

#include <chrono>

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

}  // namespace heddle::elastic
