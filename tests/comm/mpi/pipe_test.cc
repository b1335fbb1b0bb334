// The stream between a channel and the MPI thread, without MPI: a second thread plays its part.
#include "comm/mpi/pipe.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace heddle::comm {
namespace {

UniqueFd Notification() {
  return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

bool Rang(const MpiPipe& pipe) {
  pollfd watch{.fd = pipe.notification(), .events = POLLIN, .revents = 0};
  return ::poll(&watch, 1, 0) == 1;
}

Result<size_t> Write(MpiPipe& pipe, std::span<const std::byte> data) {
  const iovec part{.iov_base = const_cast<std::byte*>(data.data()), .iov_len = data.size()};
  return pipe.Write(std::span(&part, 1));
}

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 2654435761U) >> 13);
  }
  return bytes;
}

TEST(MpiPipeTest, BytesPassInOrderThroughAWindow) {
  MpiPipe near(Notification());
  MpiPipe far(Notification());
  const std::vector<std::byte> sent = Pattern(size_t{5} << 20);
  std::vector<std::byte> got(sent.size());
  std::atomic<bool> stop = false;
  // What the MPI threads of both ends do: pieces one way, credits the other.
  std::thread carrier([&] {
    while (!stop.load()) {
      while (auto piece = near.TakeOutgoing()) {
        ASSERT_TRUE(far.Deliver(std::move(piece)).ok());
      }
      ASSERT_TRUE(near.AddCredits(far.TakeCredits()).ok());
    }
  });
  std::thread writer([&] {
    size_t written = 0;
    while (written < sent.size()) {
      const auto taken = Write(near, std::span(sent).subspan(written));
      ASSERT_TRUE(taken.ok());
      written += *taken;
    }
  });
  size_t read = 0;
  while (read < got.size()) {
    const auto more =
        far.Read(std::span(got).subspan(read, std::min<size_t>(10007, got.size() - read)));
    ASSERT_TRUE(more.ok());
    read += *more;
  }
  writer.join();
  stop = true;
  carrier.join();
  EXPECT_EQ(got, sent);
}

TEST(MpiPipeTest, NoMoreThanTheWindowIsInFlight) {
  MpiPipe pipe(Notification());
  const std::vector<std::byte> data = Pattern(kMpiPieceBytes);
  uint32_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Write(pipe, data).ok());
    taken += pipe.TakeOutgoing() != nullptr ? 1 : 0;
  }
  EXPECT_EQ(taken, kMpiWindow);
  ASSERT_TRUE(pipe.Arm(true, true)) << "nothing to read, no room to write";
  EXPECT_FALSE(Rang(pipe));
  ASSERT_TRUE(pipe.AddCredits(1).ok());
  EXPECT_NE(pipe.TakeOutgoing(), nullptr);
  EXPECT_TRUE(Rang(pipe)) << "there is room again, and it was waited for";
}

TEST(MpiPipeTest, WhoBreaksTheWindowIsRefused) {
  MpiPipe pipe(Notification());
  EXPECT_EQ(pipe.AddCredits(1).code(), StatusCode::kDataLoss);
  for (uint32_t i = 0; i <= kMpiWindow; ++i) {
    auto piece = std::make_unique<MpiPiece>();
    piece->size = 1;
    EXPECT_EQ(pipe.Deliver(std::move(piece)).ok(), i < kMpiWindow) << i;
  }
}

TEST(MpiPipeTest, AFailureComesAfterWhatWasDelivered) {
  MpiPipe pipe(Notification());
  ASSERT_TRUE(pipe.Arm(true, false));
  auto piece = std::make_unique<MpiPiece>();
  piece->size = 3;
  ASSERT_TRUE(pipe.Deliver(std::move(piece)).ok());
  EXPECT_TRUE(Rang(pipe));
  pipe.Fail(UnavailableError("gone"));
  pipe.Fail(UnavailableError("again"));
  std::vector<std::byte> buffer(10);
  EXPECT_EQ(*pipe.Read(buffer), 3u);
  EXPECT_EQ(pipe.Read(buffer).status().message(), "gone");
  EXPECT_FALSE(Write(pipe, buffer).ok());
}

TEST(MpiPipeTest, AnEndFollowsTheLastPiece) {
  MpiPipe pipe(Notification());
  ASSERT_TRUE(Write(pipe, Pattern(10)).ok());
  EXPECT_FALSE(pipe.TakeEnd());
  pipe.Close(MpiClose::kWrite);
  EXPECT_FALSE(pipe.TakeEnd()) << "a piece is still to go";
  EXPECT_NE(pipe.TakeOutgoing(), nullptr);
  EXPECT_TRUE(pipe.TakeEnd());
  EXPECT_FALSE(pipe.TakeEnd()) << "once";
  EXPECT_FALSE(Write(pipe, Pattern(10)).ok());

  MpiPipe reset(Notification());
  ASSERT_TRUE(Write(reset, Pattern(10)).ok());
  reset.Close(MpiClose::kReset);
  EXPECT_EQ(reset.TakeOutgoing(), nullptr);
  EXPECT_TRUE(reset.TakeEnd());
}

}  // namespace
}  // namespace heddle::comm
