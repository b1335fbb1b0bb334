/// \file
/// A connection over an RDMA queue pair: its streams, direct placement beside them, and the
/// handshake's socket. The socket stays open because an idle queue pair does not detect its peer's
/// death, and the device of a stopped peer still accepts writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/system/unique_fd.h"
#include "comm/transport/transport.h"
#include "comm/transport/verbs/verbs_placement.h"
#include "comm/transport/verbs/verbs_stream.h"

namespace heddle::comm {

class VerbsConnection final : public Connection {
 public:
  /// `stream` has been set up and watches `socket`, the handshake's socket.
  VerbsConnection(std::unique_ptr<VerbsStream> stream, UniqueFd socket)
      : socket_(std::move(socket)),
        placement_(*stream),
        stream_(std::move(stream)) {}

  ConnectionInfo info() override;
  Result<size_t> Write(std::span<const iovec> parts) override;
  Result<size_t> Read(std::span<std::byte> buffer) override { return stream_->Read(buffer); }
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override;
  Watch SleepOn(bool want_write) const override;
  void OnReady(int fd, uint32_t events) override;
  bool PrepareToWait(bool want_read, bool want_write) override;
  void Close(Ending how) override;

 private:
  UniqueFd socket_;
  VerbsPlacement placement_;
  const std::unique_ptr<VerbsStream> stream_;  ///< Destroyed before placement_'s registrations.
};

}  // namespace heddle::comm
