/// \file
/// Goal: what a writer promises beside the bytes: one save in flight, training that goes on beside
/// it, cancelling, what it refuses, what it does when storage is full.
#include "checkpoint/save/writer.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/read/reader.h"
#include "tests/checkpoint/support.h"
#include "tests/support/eventually.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

Deadline Soon() {
  return After(testing::kHang);
}

class WriterTest : public ::testing::Test {
 protected:
  WriterTest() {
    Random random(11);
    AddTensor(state_, {"w", "master", DType::kF32, {512, 1024}}, random);
    view_ = {.stored = {"w", "master", DType::kF32, {512, 1024}, WholeBox({512, 1024})},
             .bytes = state_.bytes[0]};
  }

  std::unique_ptr<Writer> MakeWriter(int64_t chunk_bytes = int64_t{1} << 20,
                                     std::function<void()> before_copy = {}) {
    WriterOptions options;
    options.root = folder_.path();
    options.name = "w0";
    options.chunk_bytes = chunk_bytes;
    options.before_copy = std::move(before_copy);
    auto writer = Writer::Create(std::move(options), metrics_);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    return *std::move(writer);
  }

  /// A writer whose copying thread stands still until `release_` is set, so that only the caller
  /// copies.
  std::unique_ptr<Writer> MakeHeldWriter(int64_t chunk_bytes = int64_t{1} << 20) {
    return MakeWriter(chunk_bytes, [released = release_.get_future().share()] {
      released.wait_for(testing::kHang);
    });
  }

  /// Commits the part alone and expects it to hold `bytes` as the whole state.
  void ExpectHolds(const FilePart& part, const State& state, const std::vector<Bytes>& bytes) {
    const auto committed = Commit({.root = folder_.path(),
                                   .step = part.step,
                                   .generation = part.generation,
                                   .job = TestJob(),
                                   .expected = state.tensors,
                                   .parts = {part}},
                                  metrics_);
    ASSERT_TRUE(committed.ok()) << committed.status().ToString();
    const auto reader = Reader::Open(committed->path);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    for (size_t i = 0; i < bytes.size(); ++i) {
      const TensorInfo& info = state.tensors[i];
      Bytes read(bytes[i].size());
      const Status status = (*reader)->Read(info.key(), WholeBox(info.shape), read);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_TRUE(read == bytes[i]) << info.name << " of step " << part.step;
    }
  }

  double Failures() {
    return metrics_.GetCounter("heddle_checkpoint_failures_total", "", {{"scope", "worker"}})
        .Value();
  }

  std::promise<void> release_;
  const TemporaryFolder folder_;
  metrics::Registry metrics_;
  State state_;
  BoxView view_;
};

TEST_F(WriterTest, TheNextSaveIsRefusedWhileOneIsInFlightOrWaits) {
  const auto writer = MakeWriter();
  std::promise<void> reached;
  std::promise<void> release;
  auto may_end = release.get_future();
  const auto hold = [&](const Result<FilePart>& part, const SnapshotInfo& /*info*/) {
    EXPECT_TRUE(part.ok()) << part.status().ToString();
    reached.set_value();
    may_end.wait_for(testing::kHang);
  };
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}, hold).ok());
  ASSERT_EQ(reached.get_future().wait_for(testing::kHang), std::future_status::ready);
  EXPECT_TRUE(writer->busy());
  EXPECT_EQ(writer->Snapshot({.step = 2, .generation = 1}, {{view_}}).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(Failures(), 1);
  EXPECT_EQ(writer->Wait(Now()).status().code(), StatusCode::kDeadlineExceeded);
  release.set_value();
  const auto waited =
      writer->Snapshot({.step = 3, .generation = 1, .wait = testing::kHang}, {{view_}});
  ASSERT_TRUE(waited.ok()) << waited.status().ToString();
  EXPECT_EQ(waited->raw_bytes, 512 * 1024 * 4);
  const auto part = writer->Wait(Soon());
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_EQ(part->step, 3);
  EXPECT_FALSE(writer->busy());
}

TEST_F(WriterTest, ACancelledSaveLeavesNoFileAndTheNextOneWorks) {
  const auto writer = MakeHeldWriter(256);
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1, .deferred = true}, {{view_}}).ok());
  writer->Cancel();
  release_.set_value();
  const auto part = writer->Wait(Soon());
  EXPECT_EQ(part.status().code(), StatusCode::kCancelled) << part.status().ToString();
  EXPECT_FALSE(FileExists(folder_.path() + "/" + TemporaryFolderName(1, 1) + "/w0.g1.h5"));
  EXPECT_EQ(Failures(), 1);
  ASSERT_TRUE(writer->Snapshot({.step = 2, .generation = 2}, {{view_}}).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
}

TEST_F(WriterTest, ATensorChangedAfterADeferredSnapshotIsSavedAsItWas) {
  const auto writer = MakeHeldWriter();
  const std::vector<Bytes> before = state_.bytes;
  SnapshotInfo announced;
  ASSERT_TRUE(writer
                  ->Snapshot({.step = 1, .generation = 1, .deferred = true}, {{view_}},
                             [&](const Result<FilePart>& /*part*/, const SnapshotInfo& info) {
                               announced = info;
                             })
                  .ok());
  writer->BeforeChange(view_.bytes);
  std::ranges::fill(state_.bytes[0], std::byte{0xEE});
  release_.set_value();
  const auto part = writer->Wait(Soon());
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  ExpectHolds(*part, state_, before);
  EXPECT_EQ(announced.raw_bytes, 512 * 1024 * 4);
  EXPECT_GT(announced.stall_seconds, 0);
  const auto stalls = metrics_.GetHistogram("heddle_checkpoint_stall_seconds", "", {}).Read();
  EXPECT_EQ(stalls.cumulative.back(), 1U);
  EXPECT_EQ(stalls.sum, announced.stall_seconds);
}

TEST_F(WriterTest, MemoryIsFreeOnceTheCopyIsFinished) {
  const auto writer = MakeHeldWriter();
  const std::vector<Bytes> before = state_.bytes;
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1, .deferred = true}, {{view_}}).ok());
  writer->FinishCopy();
  state_.bytes[0] = Bytes();  // The address sanitizer sees a reader.
  release_.set_value();
  const auto part = writer->Wait(Soon());
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  ExpectHolds(*part, state_, before);
}

TEST_F(WriterTest, MemoryIsFreeOnceADeferredSaveIsCancelled) {
  const auto writer = MakeHeldWriter();
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1, .deferred = true}, {{view_}}).ok());
  writer->Cancel();
  state_.bytes[0] = Bytes();
  writer->BeforeChange(view_.bytes);
  writer->FinishCopy();
  release_.set_value();
  EXPECT_EQ(writer->Wait(Soon()).status().code(), StatusCode::kCancelled);
}

TEST_F(WriterTest, AFailedSaveHoldsNobodyUp) {
  const auto writer = MakeHeldWriter();
  ASSERT_TRUE(WriteFileAtomically(folder_.path() + "/" + TemporaryFolderName(1, 1),
                                  "a file where the folder should be")
                  .ok());
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1, .deferred = true}, {{view_}}).ok());
  writer->BeforeChange(view_.bytes);
  std::ranges::fill(state_.bytes[0], std::byte{0xEE});
  release_.set_value();
  EXPECT_FALSE(writer->Wait(Soon()).ok());
  EXPECT_EQ(Failures(), 1);
  ASSERT_TRUE(writer->Snapshot({.step = 2, .generation = 1, .deferred = true}, {{view_}}).ok());
  const auto part = writer->Wait(Soon());
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  ExpectHolds(*part, state_, state_.bytes);
}

TEST_F(WriterTest, RoomIsMadeInTheBackgroundAndRefusesNoSave) {
  const auto writer = MakeWriter();
  writer->Reserve(64 << 20);
  EXPECT_FALSE(writer->busy());
  EXPECT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_F(WriterTest, RoomIsMadeAheadUpToTheLimit) {
  constexpr int64_t kLimit = int64_t{48} << 20;
  const auto writer = Writer::Create(
      {.root = folder_.path(), .name = "w0", .staging_limit_bytes = kLimit}, metrics_);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  const int64_t before = ResidentBytes();
  (*writer)->Reserve(int64_t{1} << 50);  // More than any machine has.
  (*writer)->Reserve(1);                 // What was asked for before stays.
  EXPECT_TRUE(testing::Eventually([&] { return ResidentBytes() >= before + kLimit - (1 << 20); }));
}

TEST_F(WriterTest, ItsThreadsStandBackAsFarAsTheyShould) {
  const auto standing_back = [] {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const auto id = static_cast<id_t>(std::stoi(task.path().filename().string()));
      count += ::getpriority(PRIO_PROCESS, id) == 13 ? 1 : 0;
    }
    return count;
  };
  ASSERT_EQ(standing_back(), 0);
  const auto writer = Writer::Create(
      {.root = folder_.path(), .name = "w0", .codec_threads = 3, .niceness = 13}, metrics_);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  EXPECT_TRUE(testing::Eventually([&] { return standing_back() >= 4; }));
  EXPECT_EQ(standing_back(), 4) << "three that compress and one that writes";
}

/// A state that a fake optimizer changes, tensor by tensor in any order, right after each snapshot;
/// now and then a change of plan replaces the memory, or gives the save up.
TEST_F(WriterTest, EverySaveHoldsItsStepWhileTrainingGoesOn) {
  Random random(TestSeed());
  State state;
  for (int i = 0; i < 6; ++i) {
    const int64_t rows = random.Between(0, i == 0 ? 900 : 60);
    AddTensor(state, {fmt::format("t{}", i), "master", DType::kF32, {rows, 1024}}, random);
  }
  const auto writer = MakeWriter(64 << 10);
  for (int64_t step = 1; step <= 25; ++step) {
    const std::vector<Bytes> before = state.bytes;
    std::vector<BoxView> views;
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      const TensorInfo& info = state.tensors[i];
      views.push_back(
          {.stored = {info.name, info.role, info.dtype, info.shape, WholeBox(info.shape)},
           .bytes = state.bytes[i]});
    }
    ASSERT_TRUE(
        writer
            ->Snapshot({.step = step, .generation = 1, .wait = testing::kHang, .deferred = true},
                       views)
            .ok());
    const bool given_up = random.Below(8) == 0;
    if (given_up) {
      writer->Cancel();
    } else if (random.Below(4) == 0) {
      writer->FinishCopy();
      std::vector<Bytes> moved = before;
      state.bytes.swap(moved);
    }
    const size_t first = random.Below(state.bytes.size());
    for (size_t i = 0; i < state.bytes.size(); ++i) {
      Bytes& bytes = state.bytes[(first + i) % state.bytes.size()];
      writer->BeforeChange(bytes);
      for (std::byte& byte : bytes) {
        byte ^= static_cast<std::byte>(step);
      }
    }
    const auto part = writer->Wait(Soon());
    ASSERT_TRUE(part.ok() || given_up) << part.status().ToString();
    if (part.ok()) {
      ExpectHolds(*part, state, before);
    }
  }
}

TEST_F(WriterTest, DestructionCutsTheSaveInFlight) {
  StatusCode code = StatusCode::kOk;
  // A save may end just before: once more.
  for (int attempt = 0; attempt < 100 && code == StatusCode::kOk; ++attempt) {
    auto writer = MakeWriter(256);
    ASSERT_TRUE(writer
                    ->Snapshot({.step = 1 + attempt, .generation = 1}, {{view_}},
                               [&](const Result<FilePart>& part, const SnapshotInfo& /*info*/) {
                                 code = part.status().code();
                               })
                    .ok());
    writer.reset();
  }
  EXPECT_EQ(code, StatusCode::kCancelled);
}

TEST_F(WriterTest, BadBoxesAndOptionsAreRefused) {
  const auto writer = MakeWriter();
  const auto code = [&](const BoxView& view, int64_t step = 1) {
    return writer->Snapshot({.step = step, .generation = 1}, {{view}}).status().code();
  };
  BoxView bad = view_;
  bad.bytes = bad.bytes.first(8);
  EXPECT_EQ(code(bad), StatusCode::kInvalidArgument);
  bad = view_;
  bad.stored.box.offset = {1, 0};
  EXPECT_EQ(code(bad), StatusCode::kInvalidArgument);
  bad.stored.box.offset = {INT64_MAX, 0};
  EXPECT_EQ(code(bad), StatusCode::kInvalidArgument);
  bad.stored.box.offset = {0};
  EXPECT_EQ(code(bad), StatusCode::kInvalidArgument);
  bad = view_;
  bad.stored.name.clear();
  EXPECT_EQ(code(bad), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(view_, -1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(view_, 100'000'000), StatusCode::kInvalidArgument);
  const std::vector<BoxView> twice = {view_, view_};
  EXPECT_EQ(writer->Snapshot({.step = 1, .generation = 1}, twice).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Failures(), 8) << "each is a save that failed";
  EXPECT_EQ(writer->Wait(Soon()).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok())
      << "a refusal leaves it usable";
  EXPECT_FALSE(Writer::Create({.root = folder_.path(), .name = ""}, metrics_).ok());
  EXPECT_FALSE(
      Writer::Create({.root = folder_.path(), .name = "w", .codec_threads = 0}, metrics_).ok());
  EXPECT_FALSE(Writer::Create({.root = "/dev/null/x", .name = "w"}, metrics_).ok());
  const auto accepts = [&](int niceness, int64_t chunk_bytes, int threads = 1) {
    WriterOptions options;
    options.root = folder_.path();
    options.name = "w";
    options.niceness = niceness;
    options.chunk_bytes = chunk_bytes;
    options.codec_threads = threads;
    return Writer::Create(std::move(options), metrics_).ok();
  };
  constexpr int64_t kMax = int64_t{64} << 20;
  EXPECT_TRUE(accepts(19, 64));
  EXPECT_TRUE(accepts(0, kMax));
  EXPECT_FALSE(accepts(20, 64));
  EXPECT_FALSE(accepts(-1, 64));
  EXPECT_FALSE(accepts(0, 63));
  EXPECT_FALSE(accepts(0, kMax + 1));
  EXPECT_FALSE(accepts(0, 64, 257));
  EXPECT_TRUE(accepts(0, 64, 256));
  const auto named = [&](size_t bytes) {
    return Writer::Create({.root = folder_.path(), .name = std::string(bytes, 'n')}, metrics_);
  };
  EXPECT_TRUE(named(231).ok()) << "with its generation a file's name has 255 bytes";
  EXPECT_EQ(named(232).status().message(),
            "checkpoint writer '" + std::string(232, 'n') + "': an option is out of range");
}

TEST_F(WriterTest, AWorkerWithoutBoxesReportsAnEmptyFile) {
  const auto writer = MakeWriter();
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {}).ok());
  const auto part = writer->Wait(Soon());
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_TRUE(part->boxes.empty());
  EXPECT_GT(part->file.bytes, 0);
}

/// Saves twice to a storage with too little room, then once to one with enough.
void ExpectFullIsReported(const std::string& root, BoxView view, metrics::Registry& metrics) {
  auto writer = Writer::Create({.root = root, .name = "w0"}, metrics);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (const int64_t step : {1, 2}) {
    const bool deferred = step == 2;
    ASSERT_TRUE(
        (*writer)->Snapshot({.step = step, .generation = 1, .deferred = deferred}, {{view}}).ok());
    (*writer)->BeforeChange(view.bytes);
    const auto part = (*writer)->Wait(Soon());
    EXPECT_EQ(part.status().code(), StatusCode::kResourceExhausted) << part.status().ToString();
    EXPECT_THAT(part.status().message(), HasSubstr("w0.g1.h5"));
    EXPECT_FALSE(FileExists(root + "/" + TemporaryFolderName(step, 1) + "/w0.g1.h5"));
  }
  // The room is free again: no descriptor keeps the failed file.
  const Bytes small(64 << 10, std::byte{0x5A});
  const BoxView fits{.stored = {"s", "master", DType::kU8, {64 << 10}, WholeBox({64 << 10})},
                     .bytes = small};
  ASSERT_TRUE((*writer)->Snapshot({.step = 3, .generation = 1}, {{fits}}).ok());
  const auto part = (*writer)->Wait(Soon());
  EXPECT_TRUE(part.ok()) << part.status().ToString();
}

TEST_F(WriterTest, AFullDiskIsAnErrorAndTheRoomComesBack) {
  if (::mount("heddle-test", folder_.path().c_str(), "tmpfs", 0, "size=512k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system; the file size limit is tested "
                    "all the same";
  }
  ExpectFullIsReported(folder_.path(), view_, metrics_);
  EXPECT_EQ(::umount(folder_.path().c_str()), 0) << "a file of a failed save is still open";
}

TEST_F(WriterTest, AFileSizeLimitIsAnError) {
  // In a child: the limit and the signal belong to the whole process.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 512 << 10, .rlim_max = 512 << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ExpectFullIsReported(folder_.path() + "/limited", view_, metrics_);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(WriterTest, AFailureWhileTheCallerWaitsIsTheCallersError) {
  const std::string root = folder_.path() + "/gone";
  auto created = Writer::Create({.root = root, .name = "w0", .staging_limit_bytes = 0}, metrics_);
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  const auto writer = *std::move(created);
  ASSERT_TRUE(WriteFileAtomically(root + "/" + TemporaryFolderName(1, 1),
                                  "a file where the folder should be")
                  .ok());
  // It waits until the save has ended: one in the background may have read the state before the
  // folder fails.
  EXPECT_FALSE(writer->Snapshot({.step = 1, .generation = 1, .background = false}, {{view_}}).ok());
  EXPECT_FALSE(writer->Wait(Soon()).ok());
  EXPECT_TRUE(writer->Snapshot({.step = 2, .generation = 1}, {{view_}}).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
}

TEST_F(WriterTest, ASaveThatIsNotInTheBackgroundHasEndedAndCopiesNothing) {
  int copies = 0;
  auto created = Writer::Create(
      {.root = folder_.path(), .name = "w0", .before_copy = [&copies] { ++copies; }}, metrics_);
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  const auto writer = *std::move(created);
  double stall = 0;
  const auto snapshot =
      writer->Snapshot({.step = 1, .generation = 1, .deferred = true, .background = false},
                       {{view_}}, [&stall](const Result<FilePart>& part, const SnapshotInfo& info) {
                         EXPECT_TRUE(part.ok()) << part.status().ToString();
                         EXPECT_GE(info.stall_seconds, part->seconds);
                         stall = info.stall_seconds;
                       });
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_FALSE(writer->busy());
  EXPECT_TRUE(writer->Wait(Now()).ok());
  EXPECT_EQ(copies, 0);
  EXPECT_GE(snapshot->stall_seconds, stall);
}

TEST_F(WriterTest, AFenceEndsTheWaitForASave) {
  const auto writer = MakeWriter();
  writer->Fence(2);
  writer->Fence(1);
  EXPECT_EQ(writer->Snapshot({.step = 1, .generation = 1, .background = false}, {{view_}})
                .status()
                .code(),
            StatusCode::kCancelled);
  EXPECT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
  EXPECT_TRUE(writer->Snapshot({.step = 2, .generation = 2, .background = false}, {{view_}}).ok());
  // The wait itself: of many saves some are under way when their fence comes.
  int ended = 0;
  for (int64_t generation = 3; generation < 200 && ended == 0; ++generation) {
    std::thread fence([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * (generation % 20)));
      writer->Fence(generation + 1);
    });
    const auto snapshot = writer->Snapshot(
        {.step = generation, .generation = generation, .wait = testing::kHang, .background = false},
        {{view_}});
    fence.join();
    if (!snapshot.ok()) {
      EXPECT_EQ(snapshot.status().code(), StatusCode::kCancelled) << snapshot.status().ToString();
      ended += snapshot.status().message().starts_with("not saved");
    }
  }
  EXPECT_EQ(ended, 1);
}

TEST_F(WriterTest, AStateThatJustFitsTheLimitIsCopied) {
  const auto bytes = static_cast<int64_t>(view_.bytes.size());
  for (const int64_t missing : {0, 1}) {
    int copies = 0;
    auto created = Writer::Create({.root = folder_.path(),
                                   .name = "w0",
                                   .staging_limit_bytes = bytes - missing,
                                   .before_copy = [&copies] { ++copies; }},
                                  metrics_);
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    const auto writer = *std::move(created);
    ASSERT_TRUE(
        writer->Snapshot({.step = 1 + missing, .generation = 1, .deferred = true}, {{view_}}).ok());
    const auto part = writer->Wait(Soon());
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    EXPECT_EQ(copies > 0, missing == 0) << "above the limit nothing is copied";
    ExpectHolds(*part, state_, state_.bytes);
  }
}

}  // namespace
}  // namespace heddle::checkpoint
