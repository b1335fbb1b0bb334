/// \file
/// Goal: no byte of a checkpoint changes unseen, and what changed is named. Method: flip, truncate,
/// remove; then verify, read and look for the newest sound checkpoint.
#include <filesystem>
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    seed_ = TestSeed();
    random_ = Random(seed_);
    AddTensor(state_, {"layers.0.wq", "master", DType::kF32, {40, 50}}, random_);
    AddTensor(state_, {"layers.0.wq", "exp_avg", DType::kF32, {40, 50}}, random_);
    AddTensor(state_, {"norm", "master", DType::kBF16, {300}}, random_);
    for (const int64_t step : {20, 40}) {
      const SaveSetup setup{
          .root = root_, .step = step, .generation = 3, .workers = 2, .chunk_bytes = 2048};
      const auto saved = Save(setup, state_, RandomPieces(state_, 2, 4, random_), metrics_);
      ASSERT_TRUE(saved.ok()) << saved.status().ToString();
      newest_ = saved->path;
    }
    auto manifest = LoadManifest(newest_);
    ASSERT_TRUE(manifest.ok());
    manifest_ = *std::move(manifest);
  }

  static void Flip(const std::string& path, int64_t at, int bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    ASSERT_GE(byte, 0);
    file.seekp(at);
    file.put(static_cast<char>(byte ^ (1 << bit)));
    ASSERT_TRUE(file.flush().good());
  }

  /// The tensor whose chunk holds that byte, as Verify names it.
  std::optional<std::string> TensorAt(const std::string& name, int64_t at) const {
    for (const TensorRecord& tensor : manifest_.tensors) {
      for (const BoxRecord& box : tensor.boxes) {
        for (const ChunkRecord& chunk : box.chunks) {
          if (manifest_.files[static_cast<size_t>(box.file)].name == name && at >= chunk.address &&
              at < chunk.address + chunk.bytes) {
            return tensor.info.name + " (" + tensor.info.role + ")";
          }
        }
      }
    }
    return std::nullopt;
  }

  void ExpectFallback(const std::string& culprit) const {
    std::string skipped;
    const auto sound =
        FindNewestSound(root_, [&skipped](const std::string& line) { skipped += line; });
    ASSERT_TRUE(sound.ok()) << sound.status().ToString();
    EXPECT_EQ(sound->step, 20);
    EXPECT_THAT(skipped, HasSubstr(culprit));
  }

  /// A read of everything is either refused or right.
  void ExpectNoSilentRead() const {
    const auto reader = Reader::Open(newest_);
    if (!reader.ok()) {
      return;
    }
    for (size_t t = 0; t < state_.tensors.size(); ++t) {
      Bytes out(state_.bytes[t].size());
      const Status status =
          (*reader)->Read(state_.tensors[t].key(), WholeBox(state_.tensors[t].shape), out);
      EXPECT_TRUE(!status.ok() || out == state_.bytes[t]) << state_.tensors[t].name;
    }
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/checkpoints";
  metrics::Registry metrics_;
  uint64_t seed_ = 0;
  Random random_ = Random(0);
  State state_;
  std::string newest_;
  Manifest manifest_;
};

TEST_F(DamageTest, EveryFlippedByteIsFoundAndNamed) {
  int tensor_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(newest_)) {
    const std::string path = entry.path().string();
    const std::string name = entry.path().filename().string();
    const auto size = static_cast<int64_t>(entry.file_size());
    // The first bytes (the superblock, the manifest's head) one by one, the rest by chance.
    for (int64_t sample = 0; sample < 500; ++sample) {
      const int64_t at =
          sample < 120 ? sample : static_cast<int64_t>(random_.Below(static_cast<uint64_t>(size)));
      const int bit = static_cast<int>(random_.Below(8));
      Flip(path, at, bit);
      const auto damage = Verify(newest_);
      ASSERT_TRUE(damage.ok()) << name << " byte " << at << ": " << damage.status().ToString();
      ASSERT_FALSE(damage->empty()) << name << " byte " << at << " bit " << bit;
      for (const Damage& one : *damage) {
        EXPECT_EQ(one.file, name);
      }
      const auto tensor = TensorAt(name, at);
      EXPECT_EQ(damage->front().tensor, tensor.value_or("")) << name << " byte " << at;
      EXPECT_EQ(damage->size(), 1U) << name << " byte " << at;
      tensor_bytes += tensor ? 1 : 0;
      if (sample % 10 == 0) {
        ExpectFallback(name);
        ExpectNoSilentRead();
      }
      Flip(path, at, bit);
    }
  }
  EXPECT_GT(tensor_bytes, 100);
  const auto damage = Verify(newest_);
  ASSERT_TRUE(damage.ok());
  EXPECT_TRUE(damage->empty()) << "the flips were undone";
}

TEST_F(DamageTest, TruncatedFilesAreNamed) {
  for (const std::string& name : {manifest_.files[0].name, std::string(kManifestName)}) {
    const std::string path = newest_ + "/" + name;
    const auto size = std::filesystem::file_size(path);
    const auto whole = ReadFile(path, 1 << 30);
    ASSERT_TRUE(whole.ok());
    for (const auto left : {size - 1, size / 2, size_t{0}}) {
      std::filesystem::resize_file(path, left);
      const auto damage = Verify(newest_);
      ASSERT_TRUE(damage.ok());
      ASSERT_FALSE(damage->empty());
      EXPECT_EQ(damage->front().file, name);
      ExpectFallback(name);
      ExpectNoSilentRead();
    }
    ASSERT_TRUE(WriteFileAtomically(path, *whole).ok());
  }
}

TEST_F(DamageTest, AFileOfAnotherLengthIsNamedOnce) {
  const FileRecord& file = manifest_.files[0];
  const std::string path = newest_ + "/" + file.name;
  std::filesystem::resize_file(path, static_cast<uint64_t>(file.bytes) + 1);
  const auto damage = Verify(newest_);
  ASSERT_TRUE(damage.ok()) << damage.status().ToString();
  ASSERT_EQ(damage->size(), 1U);
  EXPECT_EQ(ToString(damage->front()),
            fmt::format("{}: {} bytes, {} expected", file.name, file.bytes + 1, file.bytes));
}

TEST_F(DamageTest, MissingAndForeignFilesAreNamed) {
  const std::string path = newest_ + "/" + manifest_.files[1].name;
  std::filesystem::rename(path, path + ".away");
  auto damage = Verify(newest_);
  ASSERT_TRUE(damage.ok());
  ASSERT_EQ(damage->size(), 1U);
  EXPECT_EQ(damage->front().file, manifest_.files[1].name);
  ExpectFallback(manifest_.files[1].name);
  // A FIFO in its place must not hang anyone.
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  damage = Verify(newest_);
  ASSERT_TRUE(damage.ok());
  ASSERT_EQ(damage->size(), 1U);
  EXPECT_EQ(damage->front().file, manifest_.files[1].name);
  // Nor may a folder or a link that leads to itself.
  for (const bool link : {false, true}) {
    std::filesystem::remove(path);
    if (link) {
      std::filesystem::create_symlink(path, path);
    } else {
      std::filesystem::create_directory(path);
    }
    damage = Verify(newest_);
    ASSERT_TRUE(damage.ok());
    ASSERT_EQ(damage->size(), 1U);
    EXPECT_EQ(damage->front().file, manifest_.files[1].name);
    ExpectFallback(manifest_.files[1].name);
  }
  // The other writer's file in its place.
  std::filesystem::remove(path);
  std::filesystem::copy_file(newest_ + "/" + manifest_.files[0].name, path);
  damage = Verify(newest_);
  ASSERT_TRUE(damage.ok());
  EXPECT_FALSE(damage->empty());
  ExpectNoSilentRead();
}

TEST_F(DamageTest, WithoutManifestACheckpointIsDamagedAndAnotherFolderIsNone) {
  std::filesystem::remove(newest_ + "/" + kManifestName);
  const auto damage = Verify(newest_ + "/");
  ASSERT_TRUE(damage.ok()) << damage.status().ToString();
  ASSERT_EQ(damage->size(), 1U);
  EXPECT_EQ(damage->front().file, kManifestName);
  ExpectFallback(kManifestName);
  for (const std::string& path :
       {root_, folder_.path() + "/nothing", newest_ + "/" + manifest_.files[0].name}) {
    EXPECT_EQ(Verify(path).status().code(), StatusCode::kInvalidArgument) << path;
    EXPECT_EQ(Reader::Open(path).status().code(), StatusCode::kInvalidArgument) << path;
  }
}

TEST_F(DamageTest, NoSoundCheckpointIsAnError) {
  for (const std::string step : {"20", "40"}) {
    Flip(root_ + "/step-000000" + step + "/" + kManifestName, 200, 1);
  }
  int skipped = 0;
  const auto sound = FindNewestSound(root_, [&skipped](const std::string& /*line*/) { ++skipped; });
  EXPECT_EQ(sound.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(skipped, 2);
  EXPECT_EQ(FindNewestSound(root_ + "/none", [](const std::string& /*line*/) {}).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace heddle::checkpoint
