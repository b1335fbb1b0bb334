/// \file
/// Goal: a conversion that is killed goes on from the files that were finished, and gives what an
/// undisturbed one gives. Method: children that kill themselves (SIGKILL) at a random moment of
/// their progress; before the next one starts, the finished files' inodes and times are noted, and
/// must be those of the result.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/unique_fd.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/convert/reshard.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr int64_t kShardBytes = 30'000;

/// Which file on the disk it is, and when it was written.
struct Seen {
  ino_t inode = 0;
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

std::map<std::string, Seen> FilesIn(const std::string& folder) {
  std::map<std::string, Seen> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    struct stat facts {};
    if (::stat(entry.path().c_str(), &facts) == 0) {
      files[entry.path().filename().string()] = {facts.st_ino, facts.st_mtim.tv_sec,
                                                 facts.st_mtim.tv_nsec};
    }
  }
  return files;
}

std::map<std::string, std::string> ContentIn(const std::string& folder) {
  std::map<std::string, std::string> content;
  for (const auto& entry : fs::directory_iterator(folder)) {
    content[entry.path().filename().string()] = *ReadFile(entry.path().string(), 1 << 30);
  }
  return content;
}

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Random random(5);
    for (int i = 0; i < 40; ++i) {
      AddTensor(state_,
                {fmt::format("t{:02}", i),
                 "master",
                 DType::kF32,
                 {static_cast<int64_t>(random.Below(60)), 40}},
                random);
    }
    source_ = folder_.path() + "/source";
    WriteSource(source_);
  }

  void WriteSource(const std::string& path) const {
    const auto format = FindFormat("safetensors");
    ASSERT_TRUE(format.ok());
    SinkRequest request;
    request.path = path;
    request.replace = true;
    for (const TensorInfo& info : state_.tensors) {
      request.tensors.push_back(
          {.name = info.name, .role = info.role, .dtype = info.dtype, .shape = info.shape});
    }
    auto sink = (*format)->create(std::move(request));
    ASSERT_TRUE(sink.ok()) << sink.status().ToString();
    for (const Bytes& bytes : state_.bytes) {
      ASSERT_TRUE(bytes.empty() || (*sink)->Append(bytes).ok());
    }
    ASSERT_TRUE((*sink)->Finish().ok());
  }

  ConvertOptions Options(const std::string& format) {
    ConvertOptions options{.to = format, .dtype = {}, .max_shard_bytes = kShardBytes};
    options.threads = 2;
    options.note = [this](const std::string& line) { notes_ += line + "\n"; };
    return options;
  }

  /// Runs `work` in a child, whose progress callback kills it after `calls` calls.
  template <typename Work>
  static bool Killed(uint64_t calls, const Work& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      uint64_t seen = 0;
      work([&](int64_t /*done*/, int64_t /*all*/) {
        if (seen++ == calls) {
          ::kill(::getpid(), SIGKILL);
        }
      });
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
  }

  /// Files that are finished, by the records beside them.
  std::map<std::string, Seen> Finished(const std::string& target) const {
    const std::string holder = HolderOf(target);
    size_t records = 0;
    for (const auto& [name, seen] : FilesIn(holder)) {
      records += name.starts_with("finished-") && name.ends_with(".json") ? 1 : 0;
    }
    std::map<std::string, Seen> finished;
    for (const auto& [name, seen] : FilesIn(holder + "/output")) {
      if (finished.size() < records) {  // By name they are in the order of writing.
        finished.emplace(name, seen);
      }
    }
    return finished;
  }
  static std::string HolderOf(const std::string& target) {
    const fs::path path(target);
    return path.parent_path() / ("." + path.filename().string() + ".tmp");
  }

  const TemporaryFolder folder_;
  State state_;
  std::string source_;
  std::string notes_;
};

TEST_F(ResumeTest, KilledConversionsGoOn) {
  Random random(TestSeed());
  for (const char* const format : {"safetensors", "pytorch", "native"}) {
    SCOPED_TRACE(format);
    const std::string undisturbed = folder_.path() + "/undisturbed-" + format;
    ASSERT_TRUE(Convert(source_, undisturbed, Options(format)).ok());
    ASSERT_GE(FilesIn(undisturbed).size(), 5U);
    int resumed = 0;
    for (int round = 0; round < 8; ++round) {
      SCOPED_TRACE(round);
      const std::string target = fmt::format("{}/{}-{}", folder_.path(), format, round);
      std::map<std::string, Seen> finished;
      // Each child gets further than those before: those start after the finished files. In every
      // other round the three together do not reach the end of the 40 tensors.
      const uint64_t range = round % 2 == 0 ? 8 : 25;
      for (int kills = 0; kills < 3; ++kills) {
        const bool killed = Killed(5 + random.Below(range), [&](Progress progress) {
          ConvertOptions options = Options(format);
          options.progress = std::move(progress);
          Convert(source_, target, options).status().IgnoreError("killed before");
        });
        if (!killed) {
          resumed += finished.empty() ? 0 : 1;
          break;
        }
        ASSERT_FALSE(FileExists(target)) << "half an output under the final name";
        const auto now = Finished(target);
        for (const auto& [name, seen] : finished) {
          ASSERT_TRUE(now.contains(name)) << name << " was lost";
          EXPECT_EQ(now.at(name), seen) << name << " was written twice";
        }
        finished = now;
      }
      if (!FileExists(target)) {
        notes_.clear();
        std::vector<int64_t> steps;
        ConvertOptions options = Options(format);
        options.progress = [&](int64_t done, int64_t all) {
          EXPECT_LE(done, all);
          steps.push_back(done);
        };
        const auto summary = Convert(source_, target, options);
        ASSERT_TRUE(summary.ok()) << summary.status().ToString();
        EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
        EXPECT_EQ(steps.back(), summary->bytes);
        if (!finished.empty()) {
          ++resumed;
          EXPECT_THAT(notes_, HasSubstr(fmt::format("{} files were finished", finished.size())));
          EXPECT_GT(steps.front(), 0);
        }
      }
      const auto files = FilesIn(target);
      for (const auto& [name, seen] : finished) {
        ASSERT_TRUE(files.contains(name)) << name;
        EXPECT_EQ(files.at(name), seen) << name << " was written twice";
      }
      EXPECT_FALSE(FileExists(HolderOf(target)));
      if (std::string(format) == "native") {  // Manifests and HDF5 files say when they were made.
        EXPECT_TRUE(Verify(target)->empty());
        EXPECT_EQ(LoadManifest(target)->tensors, LoadManifest(undisturbed)->tensors);
      } else {
        EXPECT_EQ(ContentIn(target), ContentIn(undisturbed));
      }
    }
    EXPECT_GT(resumed, 0) << "no kill left a finished file: the test has lost its aim";
  }
}

TEST_F(ResumeTest, AKilledReshardGoesOn) {
  const std::string native = folder_.path() + "/native";
  ASSERT_TRUE(Convert(source_, native, Options("native")).ok());
  const ChooseFiles choose = [](const Manifest& manifest) {
    return Result(FilesOfWriters(manifest, 6));
  };
  const std::string target = folder_.path() + "/resharded";
  ASSERT_TRUE(Killed(25, [&](Progress progress) {
    Reshard(native, target, choose, {.progress = std::move(progress)})
        .status()
        .IgnoreError("killed before");
  }));
  const auto finished = Finished(target);
  ASSERT_GE(finished.size(), 2U);
  const auto summary = Reshard(native, target, choose,
                               {.note = [this](const std::string& line) { notes_ += line; }});
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_THAT(notes_, HasSubstr("goes on"));
  const auto files = FilesIn(target);
  for (const auto& [name, seen] : finished) {
    EXPECT_EQ(files.at(name), seen) << name;
  }
  EXPECT_EQ(files.size(), 8U) << "six, their index, and the manifest";
  EXPECT_TRUE(Verify(target)->empty());
}

TEST_F(ResumeTest, AnotherSourceOtherOptionsOrDamageBeginAnew) {
  const std::string target = folder_.path() + "/target";
  const std::string fresh = folder_.path() + "/fresh";
  ASSERT_TRUE(Convert(source_, fresh, Options("safetensors")).ok());
  const auto cut = [&](const ConvertOptions& given) {
    fs::remove_all(target);
    ASSERT_TRUE(Killed(30, [&](Progress progress) {
      ConvertOptions options = given;
      options.progress = std::move(progress);
      Convert(source_, target, options).status().IgnoreError("killed before");
    }));
    ASSERT_GE(Finished(target).size(), 2U);
    notes_.clear();
  };
  const auto expect_anew = [&](const char* what) {
    SCOPED_TRACE(what);
    ASSERT_TRUE(Convert(source_, target, Options("safetensors")).ok());
    EXPECT_THAT(notes_, HasSubstr("begins anew"));
    EXPECT_EQ(ContentIn(target).size(), ContentIn(fresh).size());
    EXPECT_FALSE(FileExists(HolderOf(target)));
  };

  ConvertOptions larger = Options("safetensors");
  larger.max_shard_bytes = kShardBytes + 1000;
  cut(larger);
  expect_anew("other options");
  EXPECT_EQ(ContentIn(target), ContentIn(fresh));

  cut(Options("safetensors"));
  const std::string first = HolderOf(target) + "/output/" + Finished(target).begin()->first;
  std::string content = *ReadFile(first, 1 << 20);
  content[content.size() / 2] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(first, content).ok());
  expect_anew("a damaged file");
  EXPECT_EQ(ContentIn(target), ContentIn(fresh));

  cut(Options("safetensors"));
  ASSERT_TRUE(WriteFileAtomically(HolderOf(target) + "/finished-0.json", "{\"identity\":").ok());
  expect_anew("a damaged record");
  EXPECT_EQ(ContentIn(target), ContentIn(fresh));

  cut(Options("safetensors"));
  for (std::byte& byte : state_.bytes[3]) {
    byte ^= std::byte{1};
  }
  WriteSource(source_);
  expect_anew("another source");
  EXPECT_NE(ContentIn(target), ContentIn(fresh));
}

TEST_F(ResumeTest, OneWriterATarget) {
  const std::string target = folder_.path() + "/target";
  fs::create_directory(HolderOf(target));
  const UniqueFd lock(::open(HolderOf(target).c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const auto refused = Convert(source_, target, Options("native"));
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr("another process"));
  EXPECT_TRUE(FileExists(HolderOf(target))) << "what is another's stays";
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  EXPECT_TRUE(Convert(source_, target, Options("native")).ok());
}

TEST_F(ResumeTest, AFailureLeavesNothing) {
  state_.tensors.push_back({"loud", "master", DType::kF32, {1}});
  const float value = 1e30F;
  state_.bytes.emplace_back(sizeof(value));
  std::memcpy(state_.bytes.back().data(), &value, sizeof(value));
  WriteSource(source_);
  ConvertOptions options = Options("safetensors");
  options.dtype = DType::kF16;
  EXPECT_EQ(Convert(source_, folder_.path() + "/target", options).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(FilesIn(folder_.path()).size(), 1U);
}

}  // namespace
}  // namespace heddle::checkpoint
