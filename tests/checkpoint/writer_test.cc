/// \file
/// Goal: what a writer promises beside the bytes: one save in flight, cancelling, what it refuses,
/// what it does when storage is full.
#include "checkpoint/writer.h"

#include <csignal>
#include <filesystem>
#include <future>

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/reader.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

Deadline Soon() {
  return After(std::chrono::seconds(60));
}

class WriterTest : public ::testing::Test {
 protected:
  WriterTest() {
    Random random(11);
    AddTensor(state_, {"w", "master", DType::kF32, {512, 1024}}, random);
    view_ = {.stored = {"w", "master", DType::kF32, {512, 1024}, WholeBox({512, 1024})},
             .bytes = state_.bytes[0]};
  }

  std::unique_ptr<Writer> MakeWriter(int64_t chunk_bytes = int64_t{1} << 20) {
    WriterOptions options;
    options.root = folder_.path();
    options.name = "w0";
    options.chunk_bytes = chunk_bytes;
    auto writer = Writer::Create(std::move(options), metrics_);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    return *std::move(writer);
  }

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
  const auto hold = [&](const Result<FilePart>& part) {
    EXPECT_TRUE(part.ok()) << part.status().ToString();
    reached.set_value();
    may_end.wait_for(std::chrono::seconds(60));
  };
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}, hold).ok());
  ASSERT_EQ(reached.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_TRUE(writer->busy());
  EXPECT_EQ(writer->Snapshot({.step = 2, .generation = 1}, {{view_}}).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(writer->Wait(Now()).status().code(), StatusCode::kDeadlineExceeded);
  release.set_value();
  const auto waited =
      writer->Snapshot({.step = 3, .generation = 1, .wait = std::chrono::seconds(60)}, {{view_}});
  ASSERT_TRUE(waited.ok()) << waited.status().ToString();
  EXPECT_EQ(waited->raw_bytes, 512 * 1024 * 4);
  const auto part = writer->Wait(Soon());
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_EQ(part->step, 3);
  EXPECT_FALSE(writer->busy());
}

TEST_F(WriterTest, ACancelledSaveLeavesNoFileAndTheNextOneWorks) {
  const auto writer = MakeWriter(256);  // Thousands of chunks: still at it when cancelled.
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok());
  writer->Cancel();
  const auto part = writer->Wait(Soon());
  EXPECT_EQ(part.status().code(), StatusCode::kCancelled) << part.status().ToString();
  EXPECT_FALSE(FileExists(folder_.path() + "/" + TemporaryFolderName(1, 1) + "/w0.g1.h5"));
  EXPECT_EQ(
      metrics_.GetCounter("heddle_checkpoint_failures_total", "", {{"scope", "worker"}}).Value(),
      1);
  ASSERT_TRUE(writer->Snapshot({.step = 2, .generation = 2}, {{view_}}).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
}

TEST_F(WriterTest, DestructionDuringASaveIsBounded) {
  auto writer = MakeWriter(256);
  ASSERT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok());
  const Time start = Now();
  writer.reset();
  EXPECT_LT(Seconds(Now() - start), 20);
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
  EXPECT_EQ(writer->Wait(Soon()).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok())
      << "a refusal leaves it usable";
  EXPECT_FALSE(Writer::Create({.root = folder_.path(), .name = ""}, metrics_).ok());
  EXPECT_FALSE(
      Writer::Create({.root = folder_.path(), .name = "w", .codec_threads = 0}, metrics_).ok());
  EXPECT_FALSE(Writer::Create({.root = "/dev/null/x", .name = "w"}, metrics_).ok());
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
    ASSERT_TRUE((*writer)->Snapshot({.step = step, .generation = 1}, {{view}}).ok());
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
  EXPECT_FALSE(writer->Snapshot({.step = 1, .generation = 1}, {{view_}}).ok());
  EXPECT_FALSE(writer->Wait(Soon()).ok());
  EXPECT_TRUE(writer->Snapshot({.step = 2, .generation = 1}, {{view_}}).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
}

}  // namespace
}  // namespace heddle::checkpoint
