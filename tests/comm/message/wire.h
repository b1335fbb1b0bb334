/// \file
/// A channel's connection that a test controls: the input that it gets, the output written to it
/// and the calls that it gets.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/system/unique_fd.h"
#include "comm/stream/frame.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// The input, output and calls of a connection that a channel owns.
struct Wire {
  void Give(const FrameHeader& header, const std::string& payload = {}) {
    const std::lock_guard lock(mutex);
    const auto* bytes = reinterpret_cast<const std::byte*>(&header);
    incoming.insert(incoming.end(), bytes, bytes + sizeof(header));
    const auto text = AsBytes(payload);
    incoming.insert(incoming.end(), text.begin(), text.end());
    Raise();
  }
  void End() {
    const std::lock_guard lock(mutex);
    ended = true;
    Raise();
  }
  void Raise() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t done = ::write(event.get(), &one, sizeof(one));
  }
  std::vector<FrameHeader> Frames() {
    const std::lock_guard lock(mutex);
    std::vector<FrameHeader> frames;
    for (size_t at = 0; at + sizeof(FrameHeader) <= written.size();) {
      FrameHeader header;
      std::memcpy(&header, written.data() + at, sizeof(header));
      frames.push_back(header);
      at += sizeof(header) + header.length;
    }
    return frames;
  }

  std::string transport = "wire";
  std::string port = "p0";
  std::mutex mutex;
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Bytes incoming;
  Bytes written;
  size_t room = SIZE_MAX / 2;
  bool ended = false;
  bool prepared = true;  ///< The result of PrepareToWait.
  std::vector<std::pair<bool, bool>> watched;
  std::vector<std::pair<bool, bool>> waited;
  std::vector<std::pair<int, uint32_t>> ready;
  std::vector<Connection::Ending> closed;
  bool gone = false;
};

class WireEnd final : public Connection, public DescriptorPassing {
 public:
  WireEnd(std::shared_ptr<Wire> wire, bool passes) : wire_(std::move(wire)), passes_(passes) {}
  ~WireEnd() override {
    const std::lock_guard lock(wire_->mutex);
    wire_->gone = true;
  }
  ConnectionInfo info() override {
    return {.transport = wire_->transport,
            .port = wire_->port,
            .descriptors = passes_ ? this : nullptr};
  }
  Result<size_t> Write(std::span<const iovec> parts) override {
    const std::lock_guard lock(wire_->mutex);
    size_t taken = 0;
    for (const iovec& part : parts) {
      const size_t size = std::min(part.iov_len, wire_->room);
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      wire_->written.insert(wire_->written.end(), bytes, bytes + size);
      wire_->room -= size;
      taken += size;
    }
    return taken;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    const std::lock_guard lock(wire_->mutex);
    if (wire_->incoming.empty() && wire_->ended) {
      return UnavailableError("the wire was cut");
    }
    const size_t size = std::min(buffer.size(), wire_->incoming.size());
    std::copy_n(wire_->incoming.begin(), size, buffer.begin());
    wire_->incoming.erase(wire_->incoming.begin(),
                          wire_->incoming.begin() + static_cast<ptrdiff_t>(size));
    if (wire_->incoming.empty() && !wire_->ended) {  // Ready for as long as there is something.
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wire_->event.get(), &count, sizeof(count));
    }
    return size;
  }
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override {
    const std::lock_guard lock(wire_->mutex);
    wire_->watched.emplace_back(want_read, want_write);
    return {Watch{.fd = wire_->event.get(), .events = want_read ? EPOLLIN : 0U}, Watch{}};
  }
  Watch SleepOn(bool want_write) const override {
    return {.fd = wire_->event.get(), .events = want_write ? EPOLLOUT : 0U};
  }
  void OnReady(int fd, uint32_t events) override {
    const std::lock_guard lock(wire_->mutex);
    wire_->ready.emplace_back(fd, events);
  }
  bool PrepareToWait(bool want_read, bool want_write) override {
    const std::lock_guard lock(wire_->mutex);
    wire_->waited.emplace_back(want_read, want_write);
    return wire_->prepared;
  }
  void Close(Ending how) override {
    const std::lock_guard lock(wire_->mutex);
    wire_->closed.push_back(how);
  }
  pid_t peer_process() const override { return 77; }
  Status Send(uint64_t id, int fd) override { return DataLossError("sent {} as {}", fd, id); }
  Result<UniqueFd> Take(uint64_t id) override { return DataLossError("took {}", id); }

 private:
  const std::shared_ptr<Wire> wire_;
  const bool passes_;
};

}  // namespace heddle::comm
