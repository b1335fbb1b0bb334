// One stream over several sockets: whole and in order whatever each socket takes and gives; ends
// and peers that break the format.
#include "comm/transport/tcp/tcp_stripes.h"

#include <array>
#include <cstring>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "comm/transport/ip_socket.h"
#include "tests/support/eventually.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

std::byte At(uint64_t position) {
  return static_cast<std::byte>((position * 0x9E3779B97F4A7C15U) >> 56);
}

/// Both ends of a number of sockets; `buffer_bytes` of each differ by a factor.
struct Sockets {
  Sockets(int count, int buffer_bytes) {
    for (int i = 0; i < count; ++i) {
      int ends[2] = {};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
      const int bytes = buffer_bytes << i;
      EXPECT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
      near.emplace_back(ends[0]);
      far.emplace_back(ends[1]);
    }
  }
  std::vector<UniqueFd> near;
  std::vector<UniqueFd> far;
};

std::unique_ptr<Connection> Stripes(std::vector<UniqueFd> sockets) {
  auto made = MakeTcpStripes(std::move(sockets));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

/// Writes `count` bytes of the stream from `position` on, in two parts.
Result<size_t> WriteAt(Connection& connection, uint64_t position, size_t count, size_t first) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = At(position + i);
  }
  const iovec parts[] = {{.iov_base = bytes.data(), .iov_len = first},
                         {.iov_base = bytes.data() + first, .iov_len = count - first}};
  return connection.Write(parts);
}

/// Reads at most `count` bytes and checks them.
Result<size_t> ReadAt(Connection& connection, uint64_t position, size_t count) {
  Bytes bytes(count);
  HEDDLE_ASSIGN_OR_RETURN(const size_t got, connection.Read(bytes));
  for (size_t i = 0; i < got; ++i) {
    if (bytes[i] != At(position + i)) {
      return DataLossError("byte {}", position + i);
    }
  }
  return got;
}

/// As the loop does: tells the connection which of its descriptors are ready.
bool Serve(Connection& connection, const std::array<Connection::Watch, 2>& watches, int wait) {
  std::array<pollfd, 2> ready{};
  for (size_t i = 0; i < ready.size(); ++i) {
    ready[i] = {.fd = watches[i].events == 0 ? -1 : watches[i].fd, .events = POLLIN, .revents = 0};
  }
  const int count = ::poll(ready.data(), ready.size(), wait);
  for (const pollfd& one : ready) {
    if (one.revents != 0) {
      connection.OnReady(one.fd, POLLIN);
    }
  }
  return count > 0;
}

/// Until the connection is ready for what is wanted; false: not within ten seconds.
bool Await(Connection& connection, bool want_read, bool want_write) {
  const auto watches = connection.Watches(want_read, want_write);
  if (!connection.PrepareToWait(want_read, want_write)) {
    return true;
  }
  return Serve(connection, watches, 10000);
}

TEST(TcpStripesTest, AnyMixtureOfWritesAndReadsKeepsTheOrder) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 30; ++round) {
    Sockets sockets(static_cast<int>(random.Between(2, kMaxStripes)), 2048);
    const auto writer = Stripes(std::move(sockets.near));
    const auto reader = Stripes(std::move(sockets.far));
    const uint64_t all = random.Below(1'000'000);
    const uint64_t most = round % 3 == 0 ? 100 : 400'000;
    uint64_t written = 0;
    uint64_t read = 0;
    int idle = 0;  // Neither end can move: a rest that nobody sends, or a segment that is lost.
    while (read < all && idle < 100) {
      bool moved = false;
      for (uint64_t turns = random.Below(20); turns > 0 && written < all; --turns) {
        const size_t count = std::min(all - written, 1 + random.Below(most));
        const auto took = WriteAt(*writer, written, count, random.Below(count + 1));
        ASSERT_TRUE(took.ok()) << took.status().ToString();
        written += *took;
        moved = moved || *took > 0;
      }
      for (uint64_t turns = random.Below(20); turns > 0 && read < all; --turns) {
        const auto got = ReadAt(*reader, read, 1 + random.Below(most));
        ASSERT_TRUE(got.ok()) << got.status().ToString();
        read += *got;
        moved = moved || *got > 0;
      }
      Serve(*writer, writer->Watches(false, false), 0);
      idle = moved ? 0 : idle + 1;
      if (!moved) {
        writer->PrepareToWait(true, false);
        reader->PrepareToWait(true, false);
      }
    }
    ASSERT_EQ(read, all);
    writer->Close(Connection::Ending::kWriting);
    EXPECT_EQ(reader->Read(std::span<std::byte>()).ok(), true);
    EXPECT_EQ(ReadAt(*reader, read, 1).status().code(), StatusCode::kUnavailable);
  }
}

// Each end sleeps whenever it can neither read nor write; what the last write left is sent while
// its caller only waits to read.
TEST(TcpStripesTest, NobodySleepsOverWhatCanMove) {
  for (const int count : {2, 5}) {
    Sockets sockets(count, 4096);
    const auto near = Stripes(std::move(sockets.near));
    const auto far = Stripes(std::move(sockets.far));
    constexpr uint64_t kBytes = 8'000'000;
    std::thread echo([&] {
      uint64_t read = 0;
      while (read < kBytes) {
        const auto got = ReadAt(*far, read, 100'000);
        ASSERT_TRUE(got.ok()) << got.status().ToString();
        read += *got;
        if (*got == 0) {
          ASSERT_TRUE(Await(*far, true, false)) << read;
        }
      }
      ASSERT_EQ(*WriteAt(*far, 0, 1, 0), 1U);
    });
    uint64_t written = 0;
    while (written < kBytes) {
      const size_t size = std::min<uint64_t>(kBytes - written, 256 << 10);
      const auto took = WriteAt(*near, written, size, 48);
      ASSERT_TRUE(took.ok());
      written += *took;
      if (*took == 0) {
        ASSERT_TRUE(Await(*near, false, true)) << written;
      }
    }
    Result<size_t> answer = size_t{0};
    while (answer.ok() && *answer == 0) {
      answer = ReadAt(*near, 0, 1);
      if (answer.ok() && *answer == 0) {
        ASSERT_TRUE(Await(*near, true, false));
      }
    }
    EXPECT_TRUE(answer.ok());
    echo.join();
  }
}

struct Segment {
  uint32_t magic = 0x31535448;
  uint32_t bytes = 0;
  uint64_t position = 0;
};

TEST(TcpStripesTest, PeersThatBreakTheFormatAreRefused) {
  constexpr size_t kMax = (size_t{128} << 10) + 64;
  const std::vector<std::pair<Segment, Segment>> bad = {
      {{.magic = 1, .bytes = 1}, {.bytes = 1, .position = 1}},
      {{.bytes = 0}, {.bytes = 1, .position = 1}},
      {{.bytes = kMax + 1}, {.bytes = 1, .position = 1}},
      {{.bytes = 1, .position = ~uint64_t{0}}, {.bytes = 1, .position = 1}},
      {{.bytes = 1, .position = 1}, {.bytes = 1, .position = 2}},  // Nobody has the first.
  };
  for (const auto& [first, second] : bad) {
    Sockets sockets(2, 4096);
    const auto reader = Stripes(std::move(sockets.far));
    ASSERT_EQ(::send(sockets.near[0].get(), &first, sizeof(first), 0), 16);
    ASSERT_EQ(::send(sockets.near[1].get(), &second, sizeof(second), 0), 16);
    Bytes buffer(10);
    EXPECT_EQ(reader->Read(buffer).status().code(), StatusCode::kDataLoss);
  }
}

// Whoever waits for the segment that is due is not woken by what others have.
TEST(TcpStripesTest, SegmentsThatAreEarlyWakeNobody) {
  Sockets sockets(3, 4096);
  const auto reader = Stripes(std::move(sockets.far));
  const auto give = [&](size_t socket, const Segment& segment, size_t bytes) {
    ASSERT_EQ(::send(sockets.near[socket].get(), &segment, sizeof(segment), 0), 16);
    const Bytes zeros(bytes);
    ASSERT_EQ(::send(sockets.near[socket].get(), zeros.data(), bytes, 0),
              static_cast<ssize_t>(bytes));
  };
  Bytes buffer(1000);
  give(1, {.bytes = 10, .position = 0}, 10);
  give(1, {.bytes = 10, .position = 200}, 10);  // Read with the one before.
  give(0, {.bytes = 100, .position = 10}, 50);
  give(2, {.bytes = 10, .position = 110}, 10);
  EXPECT_EQ(*reader->Read(buffer), 60U);
  EXPECT_EQ(*reader->Read(buffer), 0U);
  const auto watches = reader->Watches(true, false);
  EXPECT_TRUE(reader->PrepareToWait(true, false));
  pollfd ready{.fd = watches[0].fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, 20), 0);
  const Bytes rest(50);
  ASSERT_EQ(::send(sockets.near[0].get(), rest.data(), rest.size(), 0), 50);
  EXPECT_EQ(::poll(&ready, 1, -1), 1);
  EXPECT_EQ(*reader->Read(buffer), 60U);  // Up to 120; nobody has what follows.
  EXPECT_TRUE(reader->PrepareToWait(true, false));
}

// A caller's thread sleeps on these sockets; another one sends meanwhile, and the loop is told that
// it has nothing to watch for.
TEST(TcpStripesTest, ADriverThatSleepsIsWokenWhateverTheLoopWants) {
  Sockets sockets(2, 4096);
  const auto near = Stripes(std::move(sockets.near));
  const auto far = Stripes(std::move(sockets.far));
  EXPECT_EQ(near->Watches(false, false)[0].events, 0U);
  EXPECT_TRUE(near->PrepareToWait(true, false));
  EXPECT_EQ(*WriteAt(*near, 0, 100'000, 0), 100'000U);
  EXPECT_EQ(near->Watches(false, false)[0].events, 0U);
  const auto sleep_on = near->SleepOn(false);
  pollfd ready{.fd = sleep_on.fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
  EXPECT_EQ(*WriteAt(*far, 0, 10, 0), 10U);
  EXPECT_EQ(::poll(&ready, 1, -1), 1);
}

// What a socket took in part goes out as soon as there is room, though nothing is wanted any more.
TEST(TcpStripesTest, ARestGoesOutUnasked) {
  Sockets sockets(2, 4096);
  const auto near = Stripes(std::move(sockets.near));
  const auto far = Stripes(std::move(sockets.far));
  constexpr size_t kBytes = 100'000;
  EXPECT_EQ(*WriteAt(*near, 0, kBytes, 0), kBytes);
  size_t read = 0;
  const Deadline deadline = After(testing::kHang);
  while (read < kBytes && Now() < deadline) {
    const auto got = ReadAt(*far, read, kBytes);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    read += *got;
    Serve(*near, near->Watches(false, false), *got > 0 ? 0 : 10);
  }
  EXPECT_EQ(read, kBytes);
  EXPECT_FALSE(Serve(*near, near->Watches(false, false), 20)) << "nothing is left to do";
}

/// A connected pair over loopback, where a close can be a reset.
std::pair<UniqueFd, UniqueFd> TcpPair() {
  auto listener = ListenTcp("127.0.0.1");
  EXPECT_TRUE(listener.ok());
  auto near = DialTcp("127.0.0.1:0", listener->address);
  EXPECT_TRUE(near.ok());
  pollfd ready{.fd = listener->socket.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, -1), 1);
  UniqueFd far(::accept4(listener->socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_TRUE(far.valid());
  return {*std::move(near), std::move(far)};
}

/// The far ends of two, and the near ends' sockets.
std::pair<std::array<UniqueFd, 2>, std::unique_ptr<Connection>> TcpReader() {
  std::array<UniqueFd, 2> near;
  std::vector<UniqueFd> sockets(near.size());
  for (size_t i = 0; i < near.size(); ++i) {
    std::tie(near[i], sockets[i]) = TcpPair();
  }
  return {std::move(near), Stripes(std::move(sockets))};
}

void SendAll(const UniqueFd& socket, const void* data, size_t bytes) {
  ASSERT_EQ(::send(socket.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

TEST(TcpStripesTest, WhatCameInOrderIsReadBeforeALossIsSaid) {
  auto [near, reader] = TcpReader();
  const Segment due{.bytes = 3};
  const Bytes data{At(0), At(1), At(2)};
  SendAll(near[1], &due, sizeof(due));
  SendAll(near[1], data.data(), data.size());
  CloseByReset(near[0]);
  ASSERT_TRUE(Await(*reader, true, false));
  Result<size_t> got = ReadAt(*reader, 0, 10);
  for (int tries = 0; tries < 1000 && got.ok() && *got == 0; ++tries) {
    got = ReadAt(*reader, 0, 10);
  }
  EXPECT_EQ(*got, 3U);
  Await(*reader, true, false);
  EXPECT_EQ(ReadAt(*reader, 3, 10).status().code(), StatusCode::kUnavailable);
}

// The segment that is due arrives elsewhere; the loss of this one's socket is told all the same,
// and does not keep its watch ready for ever.
TEST(TcpStripesTest, TheLossOfASocketWithAnEarlySegmentIsSaid) {
  auto [near, reader] = TcpReader();
  const Segment early{.bytes = 3, .position = 100};
  SendAll(near[0], &early, sizeof(early));
  const Segment due{.bytes = 100};
  SendAll(near[1], &due, sizeof(due));
  Bytes buffer(10);
  const Deadline deadline = After(testing::kHang);
  while (reader->Watches(true, false)[0].fd >= 0 && Now() < deadline &&
         *reader->Read(buffer) == 0 && Serve(*reader, reader->Watches(true, false), 20)) {
  }
  CloseByReset(near[0]);
  Status said;
  while (said.ok() && Now() < deadline) {
    Await(*reader, true, false);
    said = reader->Read(buffer).status();
  }
  EXPECT_EQ(said.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(Serve(*reader, reader->Watches(true, false), 20));
}

// Bytes that the sockets did not take yet follow before the end.
TEST(TcpStripesTest, TheEndComesBehindEveryRest) {
  Sockets sockets(3, 4096);
  const auto near = Stripes(std::move(sockets.near));
  const auto far = Stripes(std::move(sockets.far));
  uint64_t written = 0;
  for (int i = 0; i < 3; ++i) {
    const auto took = WriteAt(*near, written, 120'000, 0);
    ASSERT_TRUE(took.ok());
    written += *took;
  }
  ASSERT_EQ(written, 360'000U);
  near->Close(Connection::Ending::kWriting);
  uint64_t read = 0;
  Result<size_t> got = size_t{0};
  const Deadline deadline = After(testing::kHang);
  while (Now() < deadline) {
    got = ReadAt(*far, read, 50'000);
    if (!got.ok()) {
      break;
    }
    read += *got;
    Serve(*near, near->Watches(false, false), 0);
  }
  EXPECT_EQ(read, written);
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
}

TEST(TcpStripesTest, AnEndWithinASegmentIsALoss) {
  Sockets sockets(2, 4096);
  const auto reader = Stripes(std::move(sockets.far));
  const Segment half{.bytes = 100};
  ASSERT_EQ(::send(sockets.near[0].get(), &half, sizeof(half), 0), 16);
  const std::byte value = At(0);
  ASSERT_EQ(::send(sockets.near[0].get(), &value, 1, 0), 1);
  EXPECT_EQ(*ReadAt(*reader, 0, 10), 1U);
  sockets.near.clear();
  EXPECT_EQ(ReadAt(*reader, 1, 10).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace heddle::comm
