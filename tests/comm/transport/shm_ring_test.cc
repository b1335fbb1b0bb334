// The rings of a pair that shares memory, against a peer that the test plays with the memory in its
// hands: bytes that wrap, room, sleep and waking, ends, and words that nobody should write.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/system/unique_fd.h"
#include "comm/transport/registry.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/shm/descriptor_message.h"
#include "comm/transport/transport.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

constexpr size_t kPage = 4096;

size_t RingBytes(TrafficClass traffic_class) {
  return size_t{traffic_class == TrafficClass::kBulk ? 512U : 128U} << 10;
}

Bytes Pattern(size_t size, uint64_t from) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(((from + i) * 0x9E3779B97F4A7C15U) >> 56);
  }
  return bytes;
}

Result<size_t> WriteTo(Connection& connection, const Bytes& bytes, size_t first) {
  auto* const data = const_cast<std::byte*>(bytes.data());
  const iovec parts[] = {{.iov_base = data, .iov_len = first},
                         {.iov_base = data + first, .iov_len = bytes.size() - first}};
  return connection.Write(parts);
}

Bytes ReadFrom(Connection& connection, size_t most) {
  Bytes bytes(most);
  const Result<size_t> got = connection.Read(bytes);
  EXPECT_TRUE(got.ok()) << got.status().ToString();
  bytes.resize(got.ok() ? *got : 0);
  return bytes;
}

/// One direction as its control words lie in the memory.
struct Direction {
  std::byte* base;
  std::atomic<uint64_t>& head() const { return Word64(0); }
  std::atomic<uint64_t>& tail() const { return Word64(64); }
  std::atomic<uint32_t>& reader_sleeps() const { return Word32(128); }
  std::atomic<uint32_t>& writer_sleeps() const { return Word32(192); }
  std::atomic<uint64_t>& Word64(size_t at) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(base + at);
  }
  std::atomic<uint32_t>& Word32(size_t at) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(base + at);
  }
};

class ShmRingTest : public testing::TestWithParam<TrafficClass> {
 protected:
  void SetUp() override {
    transport_ = *OpenTransport("shm", {});
    ring_ = RingBytes(GetParam());
    auto dialled = transport_->Dial({.to = transport_->address()});
    ASSERT_TRUE(dialled.ok()) << dialled.status().ToString();
    peer_ = *std::move(dialled);
    const int listener = transport_->listeners().front().socket;
    pollfd waiting{.fd = listener, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&waiting, 1, 5000), 1);
    accepted_.Reset(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    ASSERT_TRUE(accepted_.valid());
  }
  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket, bool dialled) const {
    return transport_->Begin(std::move(socket), {.traffic_class = GetParam(), .dialled = dialled});
  }
  /// Hands over `memory` as a dialler does.
  void HandOver(const UniqueFd& memory) {
    theirs_.Reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    ours_.Reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    const int descriptors[] = {memory.get(), ours_.get(), theirs_.get()};
    const std::byte byte{1};
    ASSERT_TRUE(SendDescriptors(peer_.get(), std::span(&byte, 1), descriptors).ok());
  }
  /// The acceptor's end, with the test as its peer.
  void Accept() {
    const size_t bytes = 2 * (kPage + ring_);
    auto memory = MakeSharedMemory(bytes);
    ASSERT_TRUE(memory.ok());
    memory_ = *Mapping::Of(memory->get(), bytes, false);
    auto setup = Begin(std::move(accepted_), false);
    auto early = setup->Advance();
    ASSERT_TRUE(early.ok());
    EXPECT_EQ(*early, nullptr) << "the memory has not come";
    HandOver(*memory);
    auto made = setup->Advance();
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    connection_ = *std::move(made);
    ASSERT_NE(connection_, nullptr);
  }
  /// What the dialler writes and the acceptor reads.
  Direction In() const { return {memory_.base()}; }
  Direction Out() const { return {memory_.base() + kPage + ring_}; }
  static bool Notified(const UniqueFd& event) {
    uint64_t count = 0;
    return ::read(event.get(), &count, sizeof(count)) == sizeof(count);
  }

  std::unique_ptr<Transport> transport_;
  size_t ring_ = 0;
  UniqueFd peer_;  ///< The dialler's end of the local socket.
  UniqueFd accepted_;
  UniqueFd ours_;    ///< Wakes the connection.
  UniqueFd theirs_;  ///< Wakes the test.
  Mapping memory_;
  std::unique_ptr<Connection> connection_;
};

TEST_P(ShmRingTest, BytesAreWholeAndInOrderAroundTheRingsEnd) {
  auto dialler = *Begin(std::move(peer_), true)->Advance();
  auto acceptor = *Begin(std::move(accepted_), false)->Advance();
  ASSERT_TRUE(dialler != nullptr && acceptor != nullptr);
  for (const auto& [writer, reader] :
       {std::pair(dialler.get(), acceptor.get()), std::pair(acceptor.get(), dialler.get())}) {
    uint64_t written = 0;
    uint64_t read = 0;
    for (const size_t size : {size_t{1}, ring_ - 10, size_t{7}, ring_, size_t{1000}, ring_ / 2}) {
      ASSERT_EQ(*WriteTo(*writer, Pattern(size, written), size / 3), size);
      written += size;
      while (read < written) {
        const Bytes got = ReadFrom(*reader, ring_ / 3);
        ASSERT_FALSE(got.empty());
        ASSERT_EQ(got, Pattern(got.size(), read)) << read;
        read += got.size();
      }
      EXPECT_TRUE(ReadFrom(*reader, 10).empty());
    }
  }
}

TEST_P(ShmRingTest, AWriterHasTheRoomThatTheReaderLeft) {
  Accept();
  const Bytes more = Pattern(ring_ + 100, 0);
  EXPECT_EQ(*WriteTo(*connection_, more, 50), ring_);
  EXPECT_EQ(Out().head().load(), ring_);
  EXPECT_EQ(std::memcmp(Out().base + kPage, more.data(), ring_), 0);
  EXPECT_EQ(*WriteTo(*connection_, more, 50), 0U);
  Out().tail().store(30);
  EXPECT_EQ(*WriteTo(*connection_, more, 10), 30U) << "and what lay there is free";
  EXPECT_EQ(std::memcmp(Out().base + kPage, more.data(), 30), 0);
  EXPECT_EQ(Out().head().load(), ring_ + 30);
}

TEST_P(ShmRingTest, AReaderTellsHowFarItIs) {
  Accept();
  const Bytes bytes = Pattern(100, 0);
  std::memcpy(In().base + kPage, bytes.data(), bytes.size());
  In().head().store(100);
  EXPECT_EQ(ReadFrom(*connection_, 40), Pattern(40, 0));
  EXPECT_EQ(In().tail().load(), 40U);
  EXPECT_EQ(ReadFrom(*connection_, 400), Pattern(60, 40));
  EXPECT_EQ(In().tail().load(), 100U);
}

TEST_P(ShmRingTest, PositionsThatCannotBeAreRefused) {
  Accept();
  Bytes buffer(10);
  In().head().store(ring_ + 1);
  EXPECT_EQ(connection_->Read(buffer).status().code(), StatusCode::kDataLoss);
  In().head().store(ring_);
  EXPECT_EQ(*connection_->Read(buffer), 10U) << "a full ring may be";
  In().head().store(9);
  EXPECT_EQ(connection_->Read(buffer).status().code(), StatusCode::kDataLoss) << "back";
  Out().tail().store(1);
  EXPECT_EQ(WriteTo(*connection_, buffer, 5).status().code(), StatusCode::kDataLoss)
      << "more than was written";
  Out().tail().store(0);
  EXPECT_EQ(*WriteTo(*connection_, buffer, 5), 10U);
}

TEST_P(ShmRingTest, WhoSleepsIsWokenOnce) {
  Accept();
  const Bytes bytes = Pattern(10, 0);
  EXPECT_EQ(*WriteTo(*connection_, bytes, 5), 10U);
  EXPECT_FALSE(Notified(theirs_)) << "it is awake";
  Out().reader_sleeps().store(1);
  EXPECT_EQ(*WriteTo(*connection_, {}, 0), 0U);
  EXPECT_FALSE(Notified(theirs_)) << "for nothing";
  EXPECT_EQ(*WriteTo(*connection_, bytes, 5), 10U);
  EXPECT_TRUE(Notified(theirs_));
  EXPECT_EQ(Out().reader_sleeps().load(), 0U);
  EXPECT_EQ(*WriteTo(*connection_, bytes, 5), 10U);
  EXPECT_FALSE(Notified(theirs_)) << "it is being woken already";
  In().writer_sleeps().store(1);
  EXPECT_TRUE(ReadFrom(*connection_, 1).empty());
  EXPECT_FALSE(Notified(theirs_)) << "there was nothing to read";
  In().head().store(5);
  EXPECT_EQ(ReadFrom(*connection_, 1).size(), 1U);
  EXPECT_TRUE(Notified(theirs_));
  EXPECT_EQ(In().writer_sleeps().load(), 0U);
}

TEST_P(ShmRingTest, NobodySleepsOverWhatIsThere) {
  Accept();
  EXPECT_TRUE(connection_->PrepareToWait(true, false));
  EXPECT_EQ(In().reader_sleeps().load(), 1U);
  EXPECT_EQ(Out().writer_sleeps().load(), 0U);
  EXPECT_FALSE(connection_->PrepareToWait(true, true)) << "there is room";
  EXPECT_EQ(Out().writer_sleeps().load(), 1U);
  EXPECT_TRUE(connection_->PrepareToWait(false, false));
  EXPECT_EQ(In().reader_sleeps().load(), 0U);
  EXPECT_EQ(Out().writer_sleeps().load(), 0U);
  In().head().store(1);
  EXPECT_FALSE(connection_->PrepareToWait(true, false));
  EXPECT_TRUE(connection_->PrepareToWait(false, false)) << "nobody wants it";
  EXPECT_EQ(ReadFrom(*connection_, 10).size(), 1U);
  EXPECT_TRUE(connection_->PrepareToWait(true, false));
  EXPECT_EQ(*WriteTo(*connection_, Bytes(ring_), 0), ring_);
  EXPECT_TRUE(connection_->PrepareToWait(true, true)) << "the ring is full";
  EXPECT_EQ(Out().writer_sleeps().load(), 1U);
  Out().tail().store(1);
  EXPECT_FALSE(connection_->PrepareToWait(false, true));
}

TEST_P(ShmRingTest, WhatIsWatchedIsTheNotificationAndTheSocket) {
  Accept();
  const auto nothing = connection_->Watches(false, false);
  EXPECT_EQ(nothing[0].events, static_cast<uint32_t>(EPOLLET));
  EXPECT_EQ(nothing[1].events, static_cast<uint32_t>(EPOLLRDHUP | EPOLLET));
  for (const auto& [read, write] : {std::pair(true, false), std::pair(false, true)}) {
    const auto watches = connection_->Watches(read, write);
    EXPECT_EQ(watches[0].events, static_cast<uint32_t>(EPOLLIN | EPOLLET));
    EXPECT_EQ(watches[0].fd, nothing[0].fd);
    EXPECT_EQ(watches[1].fd, nothing[1].fd);
  }
  const auto sleep_on = connection_->SleepOn(false);
  EXPECT_EQ(sleep_on.fd, nothing[0].fd);
  EXPECT_EQ(sleep_on.events, static_cast<uint32_t>(EPOLLIN));
  const uint64_t one = 1;
  ASSERT_EQ(::write(ours_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  pollfd ready{.fd = sleep_on.fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 1);
  connection_->OnReady(sleep_on.fd, EPOLLIN);
  EXPECT_EQ(::poll(&ready, 1, 0), 0) << "taken";
}

TEST_P(ShmRingTest, AnEndIsSaidBehindTheLastByte) {
  for (const uint32_t events : {EPOLLRDHUP, EPOLLHUP, EPOLLERR}) {
    if (connection_ != nullptr) {
      SetUp();
    }
    Accept();
    std::memcpy(In().base + kPage, Pattern(3, 0).data(), 3);
    In().head().store(3);
    const int socket = connection_->Watches(true, false)[1].fd;
    connection_->OnReady(socket, EPOLLIN);
    EXPECT_EQ(*WriteTo(*connection_, Bytes(1), 0), 1U) << "that is no end";
    connection_->OnReady(socket, events);
    connection_->OnReady(socket, EPOLLIN);
    EXPECT_EQ(ReadFrom(*connection_, 10), Pattern(3, 0));
    Bytes buffer(10);
    EXPECT_FALSE(connection_->PrepareToWait(true, false)) << "there is an end to read";
    const Status end = connection_->Read(buffer).status();
    EXPECT_EQ(end.code(), StatusCode::kUnavailable);
    EXPECT_EQ(end.message(), "the peer closed the connection");
    EXPECT_EQ(WriteTo(*connection_, buffer, 1).status().code(), StatusCode::kUnavailable);
  }
}

TEST_P(ShmRingTest, AClosedEndTellsThePeer) {
  Accept();
  EXPECT_EQ(connection_->info().transport, "shm");
  EXPECT_EQ(connection_->info().descriptors->peer_process(), ::getpid());
  std::byte byte{};
  connection_->Close(Connection::Ending::kWriting);
  EXPECT_EQ(::recv(peer_.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(::send(peer_.get(), &byte, 1, MSG_NOSIGNAL), 1) << "it may still send";
  connection_->Close(Connection::Ending::kAtOnce);
  EXPECT_EQ(::send(peer_.get(), &byte, 1, MSG_NOSIGNAL), -1);
}

TEST_P(ShmRingTest, MemoryOfAnotherSizeIsRefused) {
  for (const size_t bytes : {2 * (kPage + ring_) - kPage, 2 * (kPage + ring_) + kPage}) {
    if (!accepted_.valid()) {
      SetUp();
    }
    const auto memory = MakeSharedMemory(bytes);
    ASSERT_TRUE(memory.ok());
    HandOver(*memory);
    const auto made = Begin(std::move(accepted_), false)->Advance();
    EXPECT_EQ(made.status().code(), StatusCode::kDataLoss) << bytes;
    EXPECT_THAT(made.status().message(), HasSubstr(std::to_string(bytes) + " bytes"));
  }
}

TEST_P(ShmRingTest, AMessageOfAnotherFormIsRefusedAndNothingOfItKept) {
  const int own[] = {peer_.get(), accepted_.get()};
  const std::array<std::byte, 2> text{std::byte{1}, std::byte{2}};
  ASSERT_TRUE(SendDescriptors(peer_.get(), std::span(text).first(1), std::span(own)).ok());
  const int lowest_free = ::dup(STDERR_FILENO);
  ::close(lowest_free);
  std::array<UniqueFd, 3> three;
  std::array<UniqueFd, 1> one;
  std::byte byte{};
  auto got = ReceiveDescriptors(accepted_.get(), std::span(&byte, 1), three);
  EXPECT_EQ(got.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(got.status().message(), "1 bytes with 2 descriptors where 1 with 3 are expected");
  three = {};
  ASSERT_TRUE(SendDescriptors(peer_.get(), std::span(text), std::span(own).first(1)).ok());
  std::array<std::byte, 3> room{};
  got = ReceiveDescriptors(accepted_.get(), room, one);
  EXPECT_EQ(got.status().message(), "2 bytes with 1 descriptors where 3 with 1 are expected");
  one = {};
  EXPECT_FALSE(*ReceiveDescriptors(accepted_.get(), room, one));
  ASSERT_TRUE(SendDescriptors(peer_.get(), std::span(text), std::span(own).first(1)).ok());
  EXPECT_TRUE(*ReceiveDescriptors(accepted_.get(), std::span(room).first(2), one));
  EXPECT_EQ(room[1], std::byte{2});
  EXPECT_TRUE(one[0].valid());
  EXPECT_NE(::fcntl(one[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  one = {};
  EXPECT_EQ(::dup(STDERR_FILENO), lowest_free) << "a descriptor was left open";
  ::close(lowest_free);
  peer_.Reset();
  got = ReceiveDescriptors(accepted_.get(), room, one);
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(got.status().message(), "the peer closed the connection");
  EXPECT_EQ(SendDescriptors(accepted_.get(), text, std::span(own).last(1)).code(),
            StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(TrafficClass,
                         ShmRingTest,
                         testing::ValuesIn(kEachTrafficClass),
                         [](const auto& parameter) {
                           return parameter.param == TrafficClass::kBulk ? "Bulk" : "Urgent";
                         });

TEST(ShmTransportTest, ADialToNobodyIsUnavailable) {
  const auto transport = *OpenTransport("shm", {});
  const auto dialled = transport->Dial({.to = "heddle-nobody"});
  EXPECT_EQ(dialled.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(dialled.status().message(), HasSubstr("connect of a local socket"));
  EXPECT_EQ(transport->Dial({.to = std::string(500, 'x')}).status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace heddle::comm
