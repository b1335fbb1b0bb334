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

/// Largest message in bytes; a plan for thousands of devices fits.
inline constexpr int kMaxMessageBytes = 64 << 20;
/// Most messages that wait for a slow peer; one more cancels its stream.
inline constexpr size_t kMaxQueuedMessages = 8192;
/// kKeepalive in milliseconds, as gRPC's options take it.
inline constexpr int kKeepaliveMilliseconds =
    static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(kKeepalive).count());

/// Sends the log lines of gRPC and protobuf to our log at debug level, since their errors are
/// returned as Status anyway. Links waits that do not depend on the wall clock (monotonic_waits.h).
/// Idempotent.
void QuietGrpc();

/// Makes a channel with a connection of its own to `coordinator` (HOST:PORT). It connects on first
/// use; back-off is the caller's. With credentials it uses TLS and both ends present certificates;
/// with an authority alone only the coordinator does.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator,
                                           const Credentials& credentials = {});

grpc::Status ToGrpc(const Status& status);
/// Converts the outcome of a call. A failed TLS handshake becomes kUnauthenticated with one line
/// that says why.
Status FromGrpc(const grpc::Status& status);

}  // namespace heddle::elastic
