/// \file
/// The control connection: limits that both ends agree on, and how one is made.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/credentials.h"
#include "elastic/protocol/service_limits.h"

namespace grpc {
class Channel;
class Status;
}  // namespace grpc

namespace heddle::elastic {

/// Largest message: a plan for thousands of devices, a checkpoint's part.
inline constexpr int kMaxMessageBytes = 64 << 20;
/// Messages that wait for a slow peer; beyond that its stream is cut.
inline constexpr size_t kMaxQueuedMessages = 8192;
/// kKeepalive, for gRPC.
inline constexpr int kKeepaliveMilliseconds =
    static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(kKeepalive).count());

/// gRPC's own lines go to our log at debug level: what matters of them comes as a Status. Its waits
/// do not depend on the wall clock (monotonic_waits.h). Idempotent.
void QuietGrpc();

/// A connection of its own to `coordinator` (HOST:PORT), made on first use, with no back-off but
/// the caller's. With credentials it is TLS: each end shows the other its certificate; with an
/// authority alone, the coordinator does.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator,
                                           const Credentials& credentials = {});

grpc::Status ToGrpc(const Status& status);
/// The outcome of a call in our words: what TLS refuses is kUnauthenticated, with one line.
Status FromGrpc(const grpc::Status& status);

}  // namespace heddle::elastic
