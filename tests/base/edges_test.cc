/// \file
/// The small things in full: every unit and every code by a table of its own, limits on both of
/// their sides, logs, fail points and threads.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail_point.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "base/system/file.h"
#include "base/system/host.h"
#include "base/system/launched.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "base/thread.h"
#include "base/units.h"
#include "tests/support/seed.h"

namespace heddle {
namespace {

using ::testing::MatchesRegex;

TEST(UnitEdgesTest, EveryUnitIsWorthWhatItSays) {
  const std::vector<std::pair<std::string, double>> sizes = {
      {"B", 1},     {"kB", 1e3},     {"KB", 1e3},       {"MB", 1e6},          {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 0x1p40}};
  for (const auto& [unit, bytes] : sizes) {
    EXPECT_EQ(static_cast<double>(ParseByteSize("3" + unit)->value), 3 * bytes) << unit;
    EXPECT_EQ(static_cast<double>(ParseByteSize("3 " + unit)->value), 3 * bytes) << unit;
    if (unit != "KB" && unit != "TB") {  // 3TB are a whole number of KiB.
      EXPECT_EQ(FormatByteSize({static_cast<int64_t>(3 * bytes)}), "3" + unit);
    }
    const Result<ByteRate> rate = ParseByteRate("3" + unit + "/s");
    ASSERT_EQ(rate.ok(), unit.front() != 'T') << unit;
    if (rate.ok()) {
      EXPECT_EQ(rate->value, 3 * bytes) << unit;
    }
  }
  const std::vector<std::pair<std::string, double>> bits = {
      {"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}};
  for (const auto& [unit, rate] : bits) {
    EXPECT_EQ(ParseByteRate("3" + unit)->value, 3 * rate / 8) << unit;
    EXPECT_EQ(ParseByteRate("3" + unit + "/s")->value, 3 * rate / 8) << unit;
    EXPECT_EQ(FormatByteRate({3 * rate / 8}), "3" + unit);
  }
  const std::vector<std::pair<std::string, int64_t>> times = {
      {"ns", 1},          {"us", 1000},         {"ms", 1000000},      {"s", 1000000000},
      {"m", 60000000000}, {"h", 3600000000000}, {"d", 86400000000000}};
  for (const auto& [unit, nanoseconds] : times) {
    EXPECT_EQ(ParseDuration("3" + unit)->count(), 3 * nanoseconds) << unit;
    EXPECT_EQ(FormatDuration(Duration(3 * nanoseconds)), "3" + unit);
  }
}

TEST(UnitEdgesTest, LimitsHoldOnBothSides) {
  EXPECT_EQ(ParseByteSize("9007199254740992B")->value, int64_t{1} << 53);
  EXPECT_FALSE(ParseByteSize("9007199254740994B").ok());
  EXPECT_EQ(ParseByteSize("8192TiB")->value, int64_t{1} << 53);
  EXPECT_FALSE(ParseByteSize("1  MiB").ok());
  EXPECT_TRUE(ParseDuration("36525d").ok());
  EXPECT_FALSE(ParseDuration("36526d").ok());
  EXPECT_EQ(ParseDuration("0.6ns")->count(), 1);
  EXPECT_EQ(ParseDuration("0.4ns")->count(), 0);
  for (const char* bad : {"/1B", ":1B", "a", "1e400B"}) {
    EXPECT_FALSE(ParseByteSize(bad).ok()) << bad;
  }
  EXPECT_TRUE(ParseByteSize("9B").ok());
  EXPECT_TRUE(ParseByteRate("0.001bit").ok());
  EXPECT_EQ(FormatByteRate({0.0625}), "0.5bit");
  EXPECT_EQ(ParseByteRate("x").status().message(),
            "expected a rate, got 'x' (write a number and a unit: 100Mbit, 1Gbit, 10MB/s)");
  EXPECT_EQ(ParseByteSize("x").status().message(),
            "expected a size, got 'x' (write a number and a unit: 64MiB, 1GiB, 500MB)");
}

TEST(StatusEdgesTest, EveryCodeHasItsName) {
  const std::vector<std::pair<StatusCode, std::string>> names = {
      {StatusCode::kOk, "OK"},
      {StatusCode::kCancelled, "CANCELLED"},
      {StatusCode::kUnknown, "UNKNOWN"},
      {StatusCode::kInvalidArgument, "INVALID_ARGUMENT"},
      {StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"},
      {StatusCode::kNotFound, "NOT_FOUND"},
      {StatusCode::kAlreadyExists, "ALREADY_EXISTS"},
      {StatusCode::kPermissionDenied, "PERMISSION_DENIED"},
      {StatusCode::kResourceExhausted, "RESOURCE_EXHAUSTED"},
      {StatusCode::kFailedPrecondition, "FAILED_PRECONDITION"},
      {StatusCode::kAborted, "ABORTED"},
      {StatusCode::kOutOfRange, "OUT_OF_RANGE"},
      {StatusCode::kUnimplemented, "UNIMPLEMENTED"},
      {StatusCode::kInternal, "INTERNAL"},
      {StatusCode::kUnavailable, "UNAVAILABLE"},
      {StatusCode::kDataLoss, "DATA_LOSS"},
      {StatusCode::kUnauthenticated, "UNAUTHENTICATED"}};
  for (const auto& [code, name] : names) {
    EXPECT_EQ(StatusCodeName(code), name);
  }
  const std::vector<std::pair<StatusCode, std::vector<int>>> errors = {
      {StatusCode::kNotFound, {ENOENT, ENOTDIR}},
      {StatusCode::kAlreadyExists, {EEXIST}},
      {StatusCode::kPermissionDenied, {EACCES, EPERM, EROFS}},
      {StatusCode::kResourceExhausted, {ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE, EADDRINUSE}},
      {StatusCode::kInvalidArgument, {EINVAL, EISDIR, ENAMETOOLONG}},
      {StatusCode::kDeadlineExceeded, {ETIMEDOUT}},
      {StatusCode::kUnavailable,
       {ECONNREFUSED, ECONNRESET, ECONNABORTED, EPIPE, EHOSTUNREACH, ENETUNREACH, ENETDOWN}},
      {StatusCode::kDataLoss, {EIO}},
      {StatusCode::kInternal, {EBADF, ESRCH}}};
  for (const auto& [code, list] : errors) {
    for (const int error : list) {
      EXPECT_EQ(ErrnoError(error, "x").code(), code) << error;
    }
  }
  EXPECT_EQ(ErrnoError(EMFILE, "x").message(), "x: Too many open files (raise `ulimit -n`)");
  EXPECT_EQ(ErrnoError(ENFILE, "x").message(), "x: Too many open files in system");
}

TEST(TensorEdgesTest, ElementTypesHaveTheirNamesAndSizes) {
  const std::vector<std::tuple<DType, std::string, int64_t>> types = {
      {DType::kF32, "fp32", 4}, {DType::kBF16, "bf16", 2}, {DType::kF16, "fp16", 2},
      {DType::kF64, "fp64", 8}, {DType::kI32, "int32", 4}, {DType::kI64, "int64", 8},
      {DType::kU8, "uint8", 1}};
  for (const auto& [type, name, size] : types) {
    EXPECT_EQ(DTypeName(type), name);
    EXPECT_EQ(*ParseDType(name), type);
    EXPECT_EQ(SizeOf(type), size);
  }
  EXPECT_EQ(ParseDType("").status().message(), "unknown element type ''");
}

TEST(TensorEdgesTest, BoxesMeetAndHoldEachOtherElementByElement) {
  Random random(testing::TestSeed());
  using Element = std::pair<int64_t, int64_t>;
  const auto elements = [](const Box& box) {
    std::set<Element> all;
    for (int64_t i = box.offset[0]; i < box.offset[0] + box.extent[0]; ++i) {
      for (int64_t j = box.offset[1]; j < box.offset[1] + box.extent[1]; ++j) {
        all.emplace(i, j);
      }
    }
    return all;
  };
  for (int round = 0; round < 500; ++round) {
    Box a;
    Box b;
    for (Box* box : {&a, &b}) {
      for (int d = 0; d < 2; ++d) {
        box->offset.push_back(random.Between(0, 4));
        box->extent.push_back(random.Between(1, 4));
      }
    }
    std::set<Element> common;
    for (const Element& element : elements(a)) {
      if (elements(b).contains(element)) {
        common.insert(element);
      }
    }
    const std::optional<Box> found = Intersect(a, b);
    ASSERT_EQ(found.has_value(), !common.empty());
    if (found.has_value()) {
      EXPECT_EQ(elements(*found), common);
    }
    EXPECT_EQ(Contains(a, b), common.size() == elements(b).size());
    EXPECT_EQ(static_cast<size_t>(ElementCount(a.extent)), elements(a).size());
  }
  EXPECT_EQ(ToString(Box{}), "[]");
  EXPECT_EQ(ElementCount({3, 0, 2}), 0);
}

TEST(RandomEdgesTest, DrawsAreThePhiloxBlocksOfOneKey) {
  Random random(42);
  for (uint64_t i = 0; i < 5; ++i) {
    const auto block = Philox(42, 0, i);
    EXPECT_EQ(random.Next(), static_cast<uint64_t>(block[1]) * 4294967296U + block[0]);
  }
  EXPECT_EQ(StreamKey(7, "name"), Hash64("name", 7));
  const Hash128Bytes bytes = Hash128({});
  std::string hex;
  for (const auto byte : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  EXPECT_EQ(hex, Hash128Hex({}));
}

TEST(FileEdgesTest, WhatCannotBeDoneNamesTheFile) {
  const TemporaryFolder folder;
  const std::string none = folder.path() + "/none";
  EXPECT_EQ(WriteFileAtomically(none + "/a", "x").ToString(),
            "NOT_FOUND: create " + none + "/a.tmp: No such file or directory");
  EXPECT_EQ(SyncFolder(none).ToString(),
            "NOT_FOUND: open folder " + none + ": No such file or directory");
  EXPECT_EQ(ReadFile(none, 1).status().ToString(),
            "NOT_FOUND: open " + none + ": No such file or directory");
  EXPECT_EQ(ReadFile(folder.path(), 1).status().message(), folder.path() + ": is a folder");
  EXPECT_EQ(ReadFile("/dev/null", 1).status().message(), "/dev/null: is not a regular file");
  const std::string full = folder.path() + "/full";
  ASSERT_TRUE(WriteFileAtomically(full, "four").ok());
  EXPECT_EQ(ReadFile(full, 3).status().message(), full + ": 4 bytes, at most 3 are read");
  EXPECT_FALSE(MakeFolders(full).ok());
  std::filesystem::create_symlink(none, folder.path() + "/dangling");
  EXPECT_FALSE(MakeFolders(folder.path() + "/dangling").ok());
  // A file of the system that says it has no bytes, and has some.
  EXPECT_EQ(ReadFile("/proc/self/status", 16).status().message(),
            "/proc/self/status: grew beyond 16 bytes");
  EXPECT_TRUE(ReadFile("/proc/self/status", 1 << 20).ok());
}

TEST(FileEdgesTest, LargeContentIsWrittenAndReadWhole) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 40000; ++i) {
    content += std::to_string(i);
  }
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/a", "old").ok());
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/a", content).ok());
  EXPECT_EQ(*ReadFile(folder.path() + "/a", static_cast<int64_t>(content.size())), content);
  EXPECT_FALSE(ReadFile(folder.path() + "/a", static_cast<int64_t>(content.size()) - 1).ok());
}

TEST(FileEdgesTest, TemporaryFoldersAreWhereTheUserWantsThem) {
  const TemporaryFolder outer;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", outer.path().c_str(), 1);
  EXPECT_EQ(TemporaryFolder().path().find(outer.path() + "/heddle-"), 0U);
  ::setenv("TMPDIR", "", 1);
  EXPECT_EQ(TemporaryFolder().path().find("/tmp/heddle-"), 0U);
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
}

TEST(FileEdgesTest, PathsAreJoinedAndCutAtTheirSlashes) {
  EXPECT_EQ(FolderOf("/a/b"), "/a");
  EXPECT_EQ(FolderOf("a/b/c"), "a/b");
  EXPECT_EQ(FolderOf(""), ".");
  EXPECT_EQ(ResolvePath("", "c/../d"), "c/../d");
  EXPECT_EQ(ResolvePath("a", "./c"), "a/c");
  EXPECT_EQ(*AbsolutePath("/a/./b/../c"), "/a/b/../c") << "/a/b is not there";
}

TEST(HostTest, IsItsBootsNameWithoutALineEnd) {
  const std::string boot = *ReadFile("/proc/sys/kernel/random/boot_id", 1 << 10);
  EXPECT_EQ(HostIdentity() + "\n", boot);
}

TEST(LaunchedEdgesTest, TheProcesssOwnEnvironmentIsLookedAt) {
  ::setenv("PMI_RANK", "5", 1);
  ::setenv("PMI_SIZE", "6", 1);
  for (const char* other : {"OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    ::unsetenv(other);
  }
  const std::optional<Launched> launched = FindLauncher();
  ASSERT_TRUE(launched.has_value());
  EXPECT_EQ(launched->launcher, "pmi");
  EXPECT_EQ(launched->rank, 5);
  EXPECT_EQ(launched->size, 6);
  ::unsetenv("PMI_RANK");
  ::unsetenv("PMI_SIZE");
  EXPECT_THAT(
      std::vector<std::string>(RankVariables().begin(), RankVariables().end()),
      ::testing::ElementsAre("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK"));
}

TEST(LogTest, LinesHaveTimeLevelAndComponentFromTheLowestLevelOn) {
  const std::string time = "[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+ ";
  const auto written = [](LogLevel level) {
    ::testing::internal::CaptureStderr();
    LogLine(level, "a {} b=1");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(written(LogLevel::kDebug), "");
  EXPECT_THAT(written(LogLevel::kInfo), MatchesRegex(time + "info a \\{\\} b=1\n"));
  ConfigureLog(LogLevel::kWarning, "worker-2");
  EXPECT_EQ(written(LogLevel::kInfo), "");
  EXPECT_THAT(written(LogLevel::kWarning), MatchesRegex(time + "warning worker-2 a \\{\\} b=1\n"));
  EXPECT_THAT(written(LogLevel::kError), MatchesRegex(time + "error worker-2 a \\{\\} b=1\n"));
  ConfigureLog(LogLevel::kDebug, "c");
  EXPECT_THAT(written(LogLevel::kDebug), MatchesRegex(time + "debug c a \\{\\} b=1\n"));
}

/// Passes the points in a process of its own that was started with `chosen`.
void Pass(const char* chosen, const std::vector<std::string>& points) {
  ::setenv("HEDDLE_FAIL_POINT", chosen, 1);
  for (const std::string& point : points) {
    FailPoint(point);
  }
  std::_Exit(7);
}

/// Exit code: one bit for each of `steps` that is spoilt, in a process that was started with
/// `path`.
void AskForSteps(const std::string& path, const std::vector<int64_t>& steps) {
  ::setenv("HEDDLE_SPOILT_STEPS", path.c_str(), 1);
  int spoilt = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    spoilt |= InjectsNaN(steps[i]) ? 1 << i : 0;
  }
  std::_Exit(spoilt);
}

TEST(SpoiltStepDeathTest, AreThoseOfTheFileAlone) {
  const std::string path = ::testing::TempDir() + "spoilt-steps-" + std::to_string(::getpid());
  EXPECT_EXIT(AskForSteps(path, {3, 12}), ::testing::ExitedWithCode(0), "") << "no file";
  std::ofstream(path) << "12\n3\n";
  EXPECT_EXIT(AskForSteps(path, {1, 3, 12, 123}), ::testing::ExitedWithCode(6), "");
  std::filesystem::remove(path);
  EXPECT_FALSE(InjectsNaN(3)) << "without the variable";
}

TEST(FailPointDeathTest, EndsTheProcessAtTheChosenPassAndNowhereElse) {
  EXPECT_EXIT(Pass("save:2", {"save", "load", "save"}), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(Pass("save:1", {"save"}), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(Pass("save:2", {"save", "load", "load"}), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(Pass("save:3", {"save", "save"}), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(Pass("", {"", "save"}), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        ::alarm(1);
        Pass("save:1:hang", {"save"});
      },
      ::testing::KilledBySignal(SIGALRM), "");
  for (const char* bad : {"save", "save:", "save:0", "save:-1", "save:2x", "save:x", "save:hang"}) {
    EXPECT_DEATH(Pass(bad, {"load"}), "expected NAME:COUNT") << bad;
  }
}

TEST(CheckDeathTest, SaysWhereWhatAndWhy) {
  const auto check = [](int value) { HEDDLE_CHECK(value == 2, "it is {}", value); };
  const auto bare = [](int value) { HEDDLE_CHECK(value == 2); };
  check(2);
  bare(2);
  EXPECT_DEATH(check(3), "edges_test.cc:[0-9]+: check failed: value == 2: it is 3");
  EXPECT_DEATH(bare(3), "edges_test.cc:[0-9]+: check failed: value == 2\n");
}

TEST(ThreadEdgesTest, NamesAreCutAndReplacedThreadsJoined) {
  char name[32] = {};
  bool first = false;
  Thread thread("a-name-of-more-than-fifteen", [&] {
    pthread_getname_np(pthread_self(), name, sizeof(name));
    first = true;
  });
  thread = Thread("second", [] {});
  EXPECT_TRUE(first);  // Joined by the assignment.
  EXPECT_STREQ(name, "a-name-of-more-");
  EXPECT_TRUE(thread.joinable());
  Thread& same = thread;
  thread = std::move(same);
  EXPECT_TRUE(thread.joinable());
  thread.Join();
  EXPECT_FALSE(thread.joinable());
  thread.Join();
}

TEST(ThreadEdgesTest, CoresAreThoseOfThisProcess) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(Cores(), CPU_COUNT(&all));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) {
      CPU_SET(cpu, &one);
    }
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(Cores(), 1);
  EXPECT_EQ(::sched_setaffinity(0, sizeof(all), &all), 0);
}

TEST(ClockTest, CpuTimeGrowsWithWorkAndWallTimeIsTheWorlds) {
  const Duration before = ThreadCpuTime();
  const Time begun = Now();
  uint64_t sum = 0;
  Random random(1);
  while (Now() - begun < std::chrono::milliseconds(5)) {
    sum += random.Next();
  }
  const Duration spent = ThreadCpuTime() - before;
  EXPECT_GT(spent.count(), 0) << sum;
  EXPECT_LE(spent, Now() - begun + std::chrono::milliseconds(20));
  EXPECT_NEAR(WallClockSeconds(), static_cast<double>(::time(nullptr)), 60);
}

}  // namespace
}  // namespace heddle
