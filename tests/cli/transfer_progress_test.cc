/// \file
/// Goal: what is shown of a long operation, on a terminal (a pty) and elsewhere (a pipe), at which
/// times. Time is the test's own.
#include "cli/checkpoint/transfer_progress.h"

#include <array>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <unistd.h>

#include "base/system/unique_fd.h"

namespace heddle::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kMega = 1'000'000;

class TransferProgressTest : public ::testing::Test {
 protected:
  void OpenPty() {
    int reading = -1;
    int writing = -1;
    ASSERT_EQ(::openpty(&reading, &writing, nullptr, nullptr, nullptr), 0);
    Take(reading, writing);
  }
  void OpenPipe() {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    Take(ends[0], ends[1]);
  }
  void Take(int reading, int writing) {
    reading_.Reset(reading);
    writing_.Reset(writing);
    ASSERT_EQ(::fcntl(reading, F_SETFL, O_NONBLOCK), 0);
  }
  /// What was written since the last call.
  std::string Shown() {
    std::string text(65536, '\0');
    const ssize_t got = ::read(reading_.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }
  std::function<Time()> Clock() {
    return [this] { return now_; };
  }
  void Pass(double seconds) { now_ += FromSeconds(seconds); }

  UniqueFd reading_;
  UniqueFd writing_;
  Time now_{std::chrono::hours(1)};
};

TEST_F(TransferProgressTest, ABarOnATerminalAfterTwoSeconds) {
  OpenPty();
  {
    TransferProgress progress(false, writing_.get(), Clock());
    progress.Update(0, 1000 * kMega);
    Pass(1.9);
    progress.Update(200 * kMega, 1000 * kMega);
    EXPECT_EQ(Shown(), "");
    Pass(0.6);
    progress.Update(250 * kMega, 1000 * kMega);
    const std::string first = Shown();
    EXPECT_THAT(first, StartsWith("\r[##########                              ]  25.0 %"));
    EXPECT_THAT(first, HasSubstr("250 of 1000 MB  100 MB/s  8 s left"));
    EXPECT_THAT(first, Not(HasSubstr("\n")));
    Pass(0.1);
    progress.Update(260 * kMega, 1000 * kMega);
    EXPECT_EQ(Shown(), "") << "five times a second at most";
    Pass(0.1);
    progress.Update(1000 * kMega, 1000 * kMega);
    EXPECT_THAT(Shown(), StartsWith("\r[########################################] 100.0 %"));
  }
  EXPECT_THAT(Shown(), HasSubstr("\n")) << "the line is ended";
}

TEST_F(TransferProgressTest, ALineEveryFiveSecondsElsewhere) {
  OpenPipe();
  TransferProgress progress(false, writing_.get(), Clock());
  std::string shown;
  for (int second = 0; second <= 20; ++second) {
    progress.Update(second * 10 * kMega, 400 * kMega);
    shown += Shown();
    Pass(1);
  }
  EXPECT_EQ(shown,
            "  5.0 %  20 of 400 MB  10 MB/s  38 s left\n"
            " 17.5 %  70 of 400 MB  10 MB/s  33 s left\n"
            " 30.0 %  120 of 400 MB  10 MB/s  28 s left\n"
            " 42.5 %  170 of 400 MB  10 MB/s  23 s left\n");
}

TEST_F(TransferProgressTest, TheRateIsThatOfWhatThisProcessDid) {
  OpenPipe();
  TransferProgress progress(false, writing_.get(), Clock());
  progress.Update(500 * kMega, 1000 * kMega);
  Pass(5);
  progress.Update(600 * kMega, 1000 * kMega);
  EXPECT_EQ(Shown(), " 60.0 %  600 of 1000 MB  20 MB/s  20 s left\n");
}

TEST_F(TransferProgressTest, SilenceAndBrokenPipes) {
  OpenPty();
  {
    TransferProgress progress(true, writing_.get(), Clock());
    progress.Update(0, 100);
    Pass(100);
    progress.Update(50, 100);
  }
  EXPECT_EQ(Shown(), "");
  TransferProgress progress(false, -1, Clock());
  Pass(100);
  progress.Update(50, 0);
}

}  // namespace
}  // namespace heddle::cli
