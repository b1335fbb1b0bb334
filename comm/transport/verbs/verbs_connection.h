/// \file
/// A connection over an RDMA queue pair: its streams, direct placement beside them, and the
/// handshake's socket, which stays open: an idle queue pair learns nothing of its peer's death, and
/// a peer that is stopped still takes writes.
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
  /// `stream` is set up and watches `socket`, the handshake's.
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
  const std::unique_ptr<VerbsStream> stream_;  ///< Ends before what its peer may write into.
};

}  // namespace heddle::comm
