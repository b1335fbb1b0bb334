/// \file
/// Goal: however a checkpoint of several workers is damaged, nothing wrong is ever loaded, nothing
/// crashes, and a file or a tensor is named. Method: thousands of random accidents (bits, runs,
/// lengths, files that went or changed places, parts of another step's checkpoint), each undone
/// afterwards. damage_test.cc looks closer at single bytes.
#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/formats/pytorch_support.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr int kOlder = 20;
constexpr int kNewer = 40;
constexpr size_t kWorkers = 3;

/// A folder's files by name.
using Files = std::map<std::string, std::string>;

Files ReadFolder(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = Slurp(entry.path().string());
  }
  return files;
}

/// Makes `folder`, which holds `from`, hold `to`.
void Replace(const std::string& folder, const Files& from, const Files& to) {
  for (const auto& [name, content] : from) {
    if (!to.contains(name)) {
      std::filesystem::remove(folder + "/" + name);
    }
  }
  for (const auto& [name, content] : to) {
    const auto held = from.find(name);
    if (held == from.end() || held->second != content) {
      Spill(folder + "/" + name, content);
    }
  }
}

State RandomState(Random& random) {
  State state;
  AddTensor(state, {"layers.0.wq", "master", DType::kF32, {40, 50}}, random);
  AddTensor(state, {"layers.0.wq", "exp_avg", DType::kF32, {40, 50}}, random);
  AddTensor(state, {"norm", "master", DType::kBF16, {300}}, random);
  AddTensor(state, {"step", "master", DType::kF64, {}}, random);
  return state;
}

class CorruptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The same cuts for both steps: a file of one could be taken for that of the other.
    const auto pieces = RandomPieces(RandomState(random_), kWorkers, 6, random_);
    for (const int64_t step : {kOlder, kNewer}) {
      states_[step] = RandomState(random_);
      const SaveSetup setup{
          .root = root_, .step = step, .generation = 3, .workers = kWorkers, .chunk_bytes = 2048};
      const auto saved = Save(setup, states_[step], pieces, metrics_);
      ASSERT_TRUE(saved.ok()) << saved.status().ToString();
      folders_[step] = saved->path;
      files_[step] = ReadFolder(saved->path);
      auto manifest = LoadManifest(saved->path);
      ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
      manifests_[step] = *std::move(manifest);
    }
  }

  const std::string& AnyName(const Files& files) {
    return std::next(files.begin(), static_cast<ptrdiff_t>(random_.Below(files.size())))->first;
  }
  const std::string& AnyDataFile() {
    const auto& files = manifests_[kNewer].files;
    return files[random_.Below(files.size())].name;
  }
  static size_t Place(const std::string& content, Random& random) {
    return random.Below(std::max<size_t>(content.size(), 1));
  }
  const BoxRecord& AnyBox() {
    for (;;) {
      const auto& tensors = manifests_[kNewer].tensors;
      const auto& boxes = tensors[random_.Below(tensors.size())].boxes;
      const BoxRecord& box = boxes[random_.Below(boxes.size())];
      if (!box.chunks.empty()) {
        return box;
      }
    }
  }

  std::string FlipBits(Files& files) {
    const std::string& name = AnyName(files);
    for (uint64_t flips = 1 + random_.Below(8); flips > 0 && !files[name].empty(); --flips) {
      char& byte = files[name][Place(files[name], random_)];
      byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << random_.Below(8)));
    }
    return "bits of " + name;
  }
  std::string OverwriteRun(Files& files) {
    const std::string& name = AnyName(files);
    const size_t at = Place(files[name], random_);
    const size_t length = std::min(1 + random_.Below(4096), files[name].size() - at);
    const bool zeros = random_.Below(2) == 0;
    for (size_t i = at; i < at + length; ++i) {
      files[name][i] = zeros ? '\0' : static_cast<char>(random_.Below(256));
    }
    return fmt::format("{} bytes from {} of {}", length, at, name);
  }
  std::string Truncate(Files& files) {
    const std::string& name = AnyName(files);
    files[name].resize(Place(files[name], random_));
    return fmt::format("{} cut to {} bytes", name, files[name].size());
  }
  std::string Grow(Files& files) {
    const std::string& name = AnyName(files);
    files[name].append(1 + random_.Below(5000), random_.Below(2) == 0 ? '\0' : ' ');
    return name + " grown";
  }
  std::string Delete(Files& files) {
    std::string name = AnyName(files);
    files.erase(name);
    return name + " deleted";
  }
  std::string SwapFiles(Files& files) {
    const std::string& one = AnyDataFile();
    const std::string& other = AnyDataFile();
    std::swap(files[one], files[other]);
    return one + " and " + other + " exchanged";
  }
  std::string SwapChunks(Files& files) {
    const BoxRecord& one = AnyBox();
    const BoxRecord& other = AnyBox();
    const ChunkRecord& a = one.chunks[random_.Below(one.chunks.size())];
    const ChunkRecord& b = other.chunks[random_.Below(other.chunks.size())];
    std::string& file = files[manifests_[kNewer].files[static_cast<size_t>(one.file)].name];
    std::string& other_file = files[manifests_[kNewer].files[static_cast<size_t>(other.file)].name];
    const auto bytes = static_cast<size_t>(std::min(a.bytes, b.bytes));
    const std::string held = file.substr(static_cast<size_t>(a.address), bytes);
    file.replace(static_cast<size_t>(a.address), bytes,
                 other_file.substr(static_cast<size_t>(b.address), bytes));
    other_file.replace(static_cast<size_t>(b.address), bytes, held);
    return "two chunks exchanged";
  }
  std::string FileOfOtherStep(Files& files) {
    const std::string& name = AnyName(files);
    files[name] = files_[kOlder].at(name);
    return name + " of the other step";
  }
  std::string ChunkOfOtherStep(Files& files) {
    const BoxRecord& box = AnyBox();
    const ChunkRecord& chunk = box.chunks[random_.Below(box.chunks.size())];
    const std::string& name = manifests_[kNewer].files[static_cast<size_t>(box.file)].name;
    const auto at = static_cast<size_t>(chunk.address);
    const auto bytes = static_cast<size_t>(chunk.bytes);
    files[name].replace(at, bytes, files_[kOlder].at(name).substr(at, bytes));
    return "a chunk of the other step";
  }
  /// A manifest with a sound checksum, some of whose records are the other step's. Where it names
  /// the right files it can only be found out when the tensor is read.
  std::string MixedManifest(Files& files) {
    Manifest mixed = manifests_[kNewer];
    const Manifest& other = manifests_[kOlder];
    const size_t t = random_.Below(mixed.tensors.size());
    const size_t f = random_.Below(mixed.files.size());
    switch (random_.Below(3)) {
      case 0:
        mixed.tensors[t] = other.tensors[t];
        forged_ = true;
        break;
      case 1:
        mixed.files[f] = other.files[f];
        break;
      default:
        mixed = other;
        mixed.step = kNewer;
    }
    files[kManifestName] = EncodeManifest(mixed);
    return "a mixed manifest";
  }
  std::string WholeOtherStep(Files& files) {
    files = files_[kOlder];
    return "all of the other step";
  }

  std::string Corrupt(Files& files) {
    switch (random_.Below(11)) {
      case 0:
        return FlipBits(files);
      case 1:
        return OverwriteRun(files);
      case 2:
        return Truncate(files);
      case 3:
        return Grow(files);
      case 4:
        return Delete(files);
      case 5:
        return SwapFiles(files);
      case 6:
        return SwapChunks(files);
      case 7:
        return FileOfOtherStep(files);
      case 8:
        return ChunkOfOtherStep(files);
      case 9:
        return MixedManifest(files);
      default:
        return WholeOtherStep(files);
    }
  }

  /// Verify finds it and names a file that is not as it was.
  void ExpectFound(const Files& files) {
    const auto damage = Verify(folders_[kNewer]);
    ASSERT_TRUE(damage.ok()) << damage.status().ToString();
    ASSERT_FALSE(damage->empty()) << "not seen";
    const bool mixed = files.contains(kManifestName) &&
                       files.at(kManifestName) != files_[kNewer].at(kManifestName);
    for (const Damage& one : *damage) {
      const auto held = files.find(one.file);
      EXPECT_TRUE(mixed || held == files.end() || held->second != files_[kNewer].at(one.file))
          << ToString(one) << ": that file is as it was";
    }
  }

  /// What resumes takes the checkpoint before and says which one it left out.
  void ExpectFallback() {
    std::string skipped;
    const auto sound =
        FindNewestSound(root_, [&skipped](const std::string& line) { skipped += line + "\n"; });
    ASSERT_TRUE(sound.ok()) << sound.status().ToString();
    if (!forged_) {
      EXPECT_EQ(sound->step, kOlder);
      EXPECT_THAT(skipped, HasSubstr(folders_[kNewer]));
    }
  }

  /// Every read is refused, naming a file, or gives the bits that were saved.
  void ExpectNoSilentRead() {
    const auto reader = Reader::Open(folders_[kNewer]);
    if (!reader.ok()) {
      EXPECT_THAT(reader.status().message(), HasSubstr(folders_[kNewer]));
      return;
    }
    const State& state = states_[kNewer];
    for (size_t t = 0; t < state.tensors.size(); ++t) {
      const TensorInfo& info = state.tensors[t];
      Bytes out(state.bytes[t].size());
      const Status status = (*reader)->Read(info.key(), WholeBox(info.shape), out);
      if (!status.ok()) {
        EXPECT_THAT(status.message(), HasSubstr(info.name));
      } else {
        EXPECT_TRUE(out == state.bytes[t]) << info.name << " (" << info.role << ") is wrong";
      }
    }
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/checkpoints";
  metrics::Registry metrics_;
  Random random_ = Random(TestSeed());
  bool forged_ = false;  ///< The corruption is a manifest that agrees with itself.
  std::map<int64_t, State> states_;
  std::map<int64_t, std::string> folders_;
  std::map<int64_t, Files> files_;
  std::map<int64_t, Manifest> manifests_;
};

TEST_F(CorruptionTest, NothingWrongIsLoaded) {
  const int rounds = Rounds("HEDDLE_CORRUPTIONS", 100, 200, 1000);
  int tried = 0;
  for (int round = 0; round < rounds; ++round) {
    Files files = files_[kNewer];
    forged_ = false;
    const std::string what = Corrupt(files);
    SCOPED_TRACE(fmt::format("{}: {}", round, what));
    if (files == files_[kNewer]) {
      continue;  // For example a file exchanged with itself.
    }
    ++tried;
    Replace(folders_[kNewer], files_[kNewer], files);
    ExpectFound(files);
    ExpectFallback();
    ExpectNoSilentRead();
    Replace(folders_[kNewer], files, files_[kNewer]);
    if (HasFailure()) {
      return;
    }
  }
  std::printf("%d corruptions of %zu files\n", tried, files_[kNewer].size());
  EXPECT_GT(tried, rounds * 4 / 5);
  const auto damage = Verify(folders_[kNewer]);
  ASSERT_TRUE(damage.ok()) << damage.status().ToString();
  EXPECT_TRUE(damage->empty()) << "everything was undone";
}

}  // namespace
}  // namespace heddle::checkpoint
