/// \file
/// Goal: what the surroundings do to a save or a reader (a process that is stopped, files that may
/// not be read, a folder that goes away, a lock that another holds, no memory, very many tensors,
/// very many saves, a reader beside a writer) never costs more than that save, and never memory.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"
#include "checkpoint/store/import.h"
#include "tests/checkpoint/support.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitized.h"

namespace heddle::checkpoint {
namespace {

/// What a child made of it: its exit code, or -1 when a signal ended it.
template <typename F>
int InChild(F&& run) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(run());
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Result<CommitInfo> SaveWhole(const std::string& root, int64_t step, const State& state) {
  metrics::Registry metrics;
  Random random(1);
  return Save({.root = root, .step = step}, state, RandomPieces(state, 1, 1, random), metrics);
}

void ExpectSound(const std::string& root, int64_t step, const State& state) {
  const std::string path = root + "/" + StepFolderName(step);
  const auto damage = Verify(path);
  ASSERT_TRUE(damage.ok()) << damage.status().ToString();
  EXPECT_TRUE(damage->empty()) << ToString(damage->front());
  const auto reader = Reader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Random random(2);
  ExpectReads(**reader, state, RandomPieces(state, 1, 2, random), 2);
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(HardshipTest, AStoppedSaveGoesOn) {
  Random random(TestSeed());
  for (int round = 0; round < 10; ++round) {
    const TemporaryFolder folder;
    const State state = StateOf(round);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::_exit(SaveWhole(folder.path(), round, state).ok() ? 0 : 1);
    }
    ::usleep(static_cast<useconds_t>(random.Below(20000)));  // Any moment of the save will do.
    ::kill(child, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    if (WIFSTOPPED(status)) {
      std::string skipped;
      const auto sound =
          FindNewestSound(folder.path(), [&](const std::string& line) { skipped += line; });
      EXPECT_EQ(skipped, "") << "there is all of it or nothing: " << sound.status().ToString();
      ::kill(child, SIGCONT);
      ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ExpectSound(folder.path(), round, state);
  }
}

TEST(HardshipTest, FilesThatMayNotBeReadAreNamed) {
  const TemporaryFolder folder;
  const State state = StateOf(1);
  ASSERT_TRUE(SaveWhole(folder.path(), 1, state).ok());
  const std::string path = folder.path() + "/" + StepFolderName(1);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  ASSERT_EQ(::chmod((path + "/w0.g1.h5").c_str(), 0), 0);
  const int code = InChild([&] {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) {
      return 3;
    }
    const auto reader = Reader::Open(path);
    const auto damage = Verify(path);
    const bool named = reader.status().message().find("w0.g1.h5") != std::string::npos &&
                       damage.ok() && !damage->empty() && damage->front().file == "w0.g1.h5";
    return named ? 0 : 1;
  });
  EXPECT_EQ(code, 0) << "3: this user cannot become another";
}

TEST(HardshipTest, AFolderThatIsRemovedDuringASaveIsAnError) {
  const TemporaryFolder folder;
  const std::string root = folder.path() + "/checkpoints";
  const State state = StateOf(1);
  metrics::Registry metrics;
  // What the writer makes in the meantime may be left; the next call takes it.
  const auto remove = [&root] {
    std::error_code left;
    std::filesystem::remove_all(root, left);
  };
  auto writer = Writer::Create({.root = root, .name = "w0", .before_copy = remove}, metrics);
  ASSERT_TRUE(writer.ok());
  std::vector<BoxView> views;
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    const TensorInfo& info = state.tensors[t];
    views.push_back({.stored = {info.name, info.role, info.dtype, info.shape, WholeBox(info.shape)},
                     .bytes = state.bytes[t]});
  }
  ASSERT_TRUE((*writer)->Snapshot({.step = 1, .generation = 1, .deferred = true}, views).ok());
  (*writer)->FinishCopy();
  const auto part = (*writer)->Wait(After(testing::kHang));
  std::filesystem::remove_all(root);
  if (part.ok()) {  // Its file was made after the folder had gone.
    const auto committed = Commit({.root = root,
                                   .step = 1,
                                   .generation = 1,
                                   .job = TestJob(),
                                   .expected = state.tensors,
                                   .parts = {*part}},
                                  metrics);
    EXPECT_FALSE(committed.ok());
  }
  ASSERT_TRUE(SaveWhole(root, 2, state).ok()) << "the next save makes its folder anew";
  ExpectSound(root, 2, state);
}

TEST(HardshipTest, ALockThatAnotherProcessHoldsIsWaitedForWithABound) {
  const TemporaryFolder folder;
  const State state = StateOf(1);
  ASSERT_TRUE(SaveWhole(folder.path(), 1, state).ok());
  for (const bool frees : {true, false}) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const int fd = ::open((folder.path() + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
      const char byte = 0;
      const bool held = ::flock(fd, LOCK_EX) == 0 && ::write(ready[1], &byte, 1) == 1;
      ::poll(nullptr, 0, frees ? 300 : -1);  // How long it holds the lock is what is tested.
      ::_exit(held ? 0 : 1);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    const auto saved = SaveWhole(folder.path(), 2, state);
    EXPECT_EQ(saved.status().code(), frees ? StatusCode::kOk : StatusCode::kUnavailable)
        << saved.status().ToString();
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(ready[0]);
    ::close(ready[1]);
    ExpectSound(folder.path(), 1, state);
  }
}

TEST(HardshipTest, NoMemoryForACodecThreadIsAnErrorOfTheSave) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer needs more address space than the limit leaves";
  }
  const TemporaryFolder folder;
  Random random(3);
  State state;
  AddTensor(state, {"large", "master", DType::kF32, {16 << 20}}, random);  // One chunk of 64 MiB.
  const int code = InChild([&] {
    metrics::Registry metrics;
    auto writer = Writer::Create({.root = folder.path(),
                                  .name = "w0",
                                  .staging_limit_bytes = 0,
                                  .chunk_bytes = int64_t{64} << 20},
                                 metrics);
    const int64_t used = ResidentBytes();
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    statm >> pages;
    const rlim_t limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + (rlim_t{48} << 20);
    const struct rlimit bound = {limit, limit};
    if (used == 0 || ::setrlimit(RLIMIT_AS, &bound) != 0) {
      return 3;
    }
    const TensorInfo& info = state.tensors[0];
    const std::vector<BoxView> views = {
        {.stored = {info.name, info.role, info.dtype, info.shape, WholeBox(info.shape)},
         .bytes = state.bytes[0]}};
    const auto snapshot = (*writer)->Snapshot({.step = 1, .generation = 1}, views);
    const auto part = (*writer)->Wait(After(testing::kHang));
    return part.status().code() == StatusCode::kResourceExhausted ? 0 : 1;
  });
  EXPECT_EQ(code, 0) << "-1: it was ended by a signal";
}

TEST(HardshipTest, VeryManyTensorsAndVeryLongNames) {
  const TemporaryFolder folder;
  Random random(4);
  State state;
  const int count = Rounds("HEDDLE_CHECKPOINT_TENSORS", 200, 500, 5000);
  for (int i = 0; i < count; ++i) {
    AddTensor(state, {fmt::format("t{:06}", i), "master", DType::kF32, {3}}, random);
  }
  AddTensor(state, {std::string(4096, 'n'), "master", DType::kF32, {3}}, random);
  const auto saved = SaveWhole(folder.path(), 1, state);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  ExpectSound(folder.path(), 1, state);

  State named;
  AddTensor(named, {std::string(10'000, 'n'), "master", DType::kF32, {3}}, random);
  EXPECT_EQ(SaveWhole(folder.path(), 2, named).status().code(), StatusCode::kInvalidArgument);
  ExpectSound(folder.path(), 1, state);
}

TEST(HardshipTest, AThousandSavesDoNotGrow) {
  const TemporaryFolder folder;
  Random random(5);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {256, 1024}}, random);
  const int saves = Rounds("HEDDLE_CHECKPOINT_SAVES", 100, 200, 1000);
  metrics::Registry metrics;
  auto writer = Writer::Create({.root = folder.path(), .name = "w0"}, metrics);
  ASSERT_TRUE(writer.ok());
  const TensorInfo& info = state.tensors[0];
  const std::vector<BoxView> views = {
      {.stored = {info.name, info.role, info.dtype, info.shape, WholeBox(info.shape)},
       .bytes = state.bytes[0]}};
  int64_t settled = 0;
  for (int step = 1; step <= saves; ++step) {
    ASSERT_TRUE((*writer)->Snapshot({.step = step, .generation = 1}, views).ok());
    auto part = (*writer)->Wait(After(testing::kHang));
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    ASSERT_TRUE(Commit({.root = folder.path(),
                        .step = step,
                        .generation = 1,
                        .job = TestJob(),
                        .expected = state.tensors,
                        .parts = {*part}},
                       metrics)
                    .ok());
    ASSERT_TRUE(
        Prune(folder.path(), {.keep_last = 2, .protected_steps = {}, .sound_step = step}).ok());
    settled = step == saves / 10 ? ResidentBytes() : settled;
  }
  // The address sanitizer keeps what is freed, up to a quarter of a gigabyte.
  const int64_t kept = kSanitized ? int64_t{256} << 20 : 0;
  EXPECT_LT(ResidentBytes() - settled, kept + (int64_t{8} << 20))
      << "after " << settled << " bytes";
}

TEST(HardshipTest, VerifyingBesideSavesSeesWholeCheckpoints) {
  const TemporaryFolder folder;
  const State state = StateOf(7);
  ASSERT_TRUE(SaveWhole(folder.path(), 1, state).ok());
  std::atomic<bool> stop = false;
  std::atomic<int> saved = 0;
  std::thread saver([&] {
    for (int64_t step = 2; !stop; ++step) {
      const bool committed = SaveWhole(folder.path(), step, state).ok();
      saved += committed ? 1 : 0;
    }
  });
  for (int round = 0; round < 200 || saved < 20; ++round) {
    std::string skipped;
    const auto sound =
        FindNewestSound(folder.path(), [&](const std::string& line) { skipped += line; });
    ASSERT_TRUE(sound.ok()) << sound.status().ToString();
    EXPECT_EQ(skipped, "");
    const auto damage = Verify(sound->path);
    ASSERT_TRUE(damage.ok()) << damage.status().ToString();
    EXPECT_TRUE(damage->empty()) << ToString(damage->front());
  }
  stop = true;
  saver.join();
}

TEST(HardshipTest, AStateOfOtherTypesOrTensorsIsNotImported) {
  const TemporaryFolder folder;
  const State state = StateOf(1);
  ASSERT_TRUE(SaveWhole(folder.path(), 1, state).ok());
  const std::string path = folder.path() + "/" + StepFolderName(1);
  const std::string other = folder.path() + "/other";
  EXPECT_TRUE(CheckImport(path, other, state.tensors).ok());
  std::vector<TensorInfo> expected = state.tensors;
  expected[1].dtype = DType::kF64;
  const Status status = CheckImport(path, other, expected).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'w' (exp_avg)"), std::string::npos) << status.message();
  expected = state.tensors;
  expected.push_back({"w", "exp_avg_sq", DType::kF32, {200, 100}});
  EXPECT_FALSE(CheckImport(path, other, expected).ok()) << "a moment is missing";
  expected.resize(1);
  EXPECT_FALSE(CheckImport(path, other, expected).ok()) << "one too many";
}

TEST(HardshipTest, ADamagedCheckpointIsNotImportedAndASoundOneIsWhole) {
  const TemporaryFolder folder;
  const State state = StateOf(1);
  ASSERT_TRUE(SaveWhole(folder.path(), 1, state).ok());
  const std::string path = folder.path() + "/" + StepFolderName(1);
  const std::string other = folder.path() + "/other";
  const auto manifest = LoadManifest(path);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  const std::string file = path + "/" + manifest->files[0].name;
  const std::string sound = *ReadFile(file, 1 << 30);
  std::string damaged = sound;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  ASSERT_TRUE(WriteFileAtomically(file, damaged).ok());
  EXPECT_EQ(CheckImport(path, other, state.tensors).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(Import(path, other, state.tensors).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(List(other)->empty());
  ASSERT_TRUE(WriteFileAtomically(file, sound).ok());
  // What an import that was killed left is in nobody's way.
  const std::string left = other + "/" + TemporaryFolderName(1, kImportGeneration);
  ASSERT_TRUE(MakeFolders(left).ok());
  ASSERT_TRUE(WriteFileAtomically(left + "/" + manifest->files[0].name, "half").ok());
  const auto step = Import(path, other, state.tensors);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  EXPECT_EQ(*step, 1);
  ExpectSound(other, 1, state);
  // Its own checkpoint is what a job goes on from.
  ASSERT_TRUE(SaveWhole(other, 5, StateOf(5)).ok());
  EXPECT_EQ(*Import(path, other, state.tensors), 5);
}

}  // namespace
}  // namespace heddle::checkpoint
