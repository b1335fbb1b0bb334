/// \file
/// Goal: a process killed at any moment of a save leaves a complete earlier checkpoint, never a
/// wrong one. Method: a child saves step after step (writing, committing, pruning); it is killed at
/// a random moment after its first commit; then the newest sound checkpoint must be one that the
/// child could have committed, with the right content, nothing may be skipped as damaged, and
/// cleaning leaves no orphan.
#include <csignal>
#include <filesystem>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

[[noreturn]] void SaveUntilKilled(const std::string& root,
                                  int64_t first_step,
                                  int64_t generation,
                                  int ready) {
  metrics::Registry metrics;
  Random random(static_cast<uint64_t>(first_step));
  for (int64_t step = first_step; step < first_step + 1000; ++step) {
    const State state = StateOf(step);
    const SaveSetup setup{
        .root = root, .step = step, .generation = generation, .workers = 2, .chunk_bytes = 8192};
    const auto saved = Save(setup, state, RandomPieces(state, 2, 4, random), metrics);
    if (!saved.ok() ||
        !Prune(root, {.keep_last = 2, .protected_steps = {}, .sound_step = step}).ok() ||
        ::write(ready, &step, sizeof(step)) != sizeof(step)) {
      ::_exit(3);
    }
  }
  ::_exit(0);
}

TEST(CrashTest, AKilledSaveNeverCostsTheCheckpointBefore) {
  Random random(TestSeed());
  const TemporaryFolder folder;
  const std::string root = folder.path() + "/checkpoints";
  int64_t next_step = 0;
  int orphans = 0;
  const int kills = Rounds("HEDDLE_CHECKPOINT_KILLS", 2, 4, 60);
  constexpr int kMaxKills = 60;  // Until one has fallen into a save.
  for (int kill = 0; kill < kills || (orphans == 0 && kill < kMaxKills); ++kill) {
    SCOPED_TRACE(kill);
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(pipe_fds[0]);
      SaveUntilKilled(root, next_step, kill, pipe_fds[1]);
    }
    ::close(pipe_fds[1]);
    int64_t committed = -1;
    ASSERT_EQ(::read(pipe_fds[0], &committed, sizeof(committed)),
              static_cast<ssize_t>(sizeof(committed)));
    ::usleep(
        static_cast<useconds_t>(random.Below(40000)));  // The random moment, not a synchronisation.
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    for (int64_t step = 0;
         ::read(pipe_fds[0], &step, sizeof(step)) == static_cast<ssize_t>(sizeof(step));) {
      committed = step;
    }
    ::close(pipe_fds[0]);

    const auto removed = CleanOrphans(root);
    ASSERT_TRUE(removed.ok()) << removed.status().ToString();
    orphans += *removed;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(ParseStepFolderName(name) || name == ".lock" || name.starts_with(".generation"))
          << name;
    }
    std::string skipped;
    const auto sound =
        FindNewestSound(root, [&skipped](const std::string& line) { skipped += line; });
    ASSERT_TRUE(sound.ok()) << sound.status().ToString();
    EXPECT_EQ(skipped, "") << "a committed checkpoint is never half written";
    EXPECT_GE(sound->step, committed) << "what was reported as committed is there";
    EXPECT_LE(sound->step, committed + 1);
    const auto damage = Verify(sound->path);
    ASSERT_TRUE(damage.ok());
    EXPECT_TRUE(damage->empty());
    const State state = StateOf(sound->step);
    const auto reader = Reader::Open(sound->path);
    ASSERT_TRUE(reader.ok());
    for (size_t t = 0; t < state.tensors.size(); ++t) {
      Bytes out(state.bytes[t].size());
      ASSERT_TRUE(
          (*reader)->Read(state.tensors[t].key(), WholeBox(state.tensors[t].shape), out).ok());
      EXPECT_TRUE(out == state.bytes[t]);
    }
    next_step = sound->step + 1;
  }
  std::printf("%d of %d kills left an orphan\n", orphans, kills);
  EXPECT_GT(orphans, 0) << "no kill fell into a save: the test has lost its aim";
}

/// What is left after a crash: one of the two steps, sound, and nothing that cleaning does not
/// remove.
void ExpectOneOf(const std::string& root, int64_t first, int64_t second) {
  std::string skipped;
  const auto sound =
      FindNewestSound(root, [&skipped](const std::string& line) { skipped += line; });
  ASSERT_TRUE(sound.ok()) << sound.status().ToString();
  EXPECT_EQ(skipped, "");
  EXPECT_TRUE(sound->step == first || sound->step == second) << sound->step;
  const State state = StateOf(sound->step);
  const auto reader = Reader::Open(sound->path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Bytes out(state.bytes[0].size());
  const Box whole = WholeBox(state.tensors[0].shape);
  ASSERT_TRUE((*reader)->Read(state.tensors[0].key(), whole, out).ok());
  EXPECT_TRUE(out == state.bytes[0]);
  ASSERT_TRUE(CleanOrphans(root).ok());
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(ParseStepFolderName(name) || name == ".lock" || name.starts_with(".generation"))
        << name;
  }
}

/// Runs `child` until its `stops`-th entry to or return from a system call and kills it there. True
/// when it ended before.
bool KilledLate(pid_t child, int stops) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  for (int i = 0; i < stops; ++i) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return true;
    }
  }
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return false;
}

/// Whether this machine lets a process be traced.
bool CanTrace() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

TEST(CrashTest, ACommitKilledAtAnySystemCallIsWholeOrAbsent) {
  if (!CanTrace()) {
    GTEST_SKIP() << "needs ptrace; the random kills are tested all the same";
  }
  const TemporaryFolder folder;
  const std::string prepared = folder.path() + "/prepared";
  metrics::Registry metrics;
  Random random(TestSeed());
  const State before = StateOf(1);
  const State after = StateOf(2);
  ASSERT_TRUE(Save({.root = prepared}, before, RandomPieces(before, 1, 2, random), metrics).ok());
  const auto parts = WriteParts({.root = prepared, .step = 2, .generation = 2, .workers = 2}, after,
                                RandomPieces(after, 2, 2, random), metrics);
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  bool ended = false;
  int stops = 0;
  for (; !ended && stops < 5000; ++stops) {
    const std::string root = folder.path() + "/run";
    std::filesystem::remove_all(root);
    std::filesystem::copy(prepared, root, std::filesystem::copy_options::recursive);
    const CommitRequest request{.root = root,
                                .step = 2,
                                .generation = 2,
                                .job = TestJob(),
                                .expected = after.tensors,
                                .parts = *parts};
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      ::raise(SIGSTOP);
      const bool ok = Commit(request, metrics).ok() &&
                      Prune(root, {.keep_last = 1, .protected_steps = {}, .sound_step = 2}).ok();
      ::_exit(ok ? 0 : 3);
    }
    ended = KilledLate(child, stops);
    SCOPED_TRACE(stops);
    ExpectOneOf(root, ended ? 2 : 1, 2);
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_GT(stops, 50) << "a commit takes more system calls than that";
  std::printf("killed at %d places\n", stops - 1);
}

}  // namespace
}  // namespace heddle::checkpoint
