/// \file
/// Goal: a snapshot that is kept in memory gives back every bit, compressed or not, whatever boxes
/// are asked for and however its parts are split; a damaged one is noticed; a description that came
/// from elsewhere cannot make a reader allocate or read what it should not.
#include "checkpoint/save/memory_shard.h"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>

#include "tests/checkpoint/support.h"
#include "tests/support/eventually.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

Deadline Soon() {
  return After(testing::kHang);
}

/// Tensors whose chunks are cut along one dimension or two, or not at all; odd sizes.
State OddState(Random& random) {
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {37, 1000}}, random);
  AddTensor(state, {"w", "exp_avg", DType::kF32, {37, 1000}}, random);
  AddTensor(state, {"deep", "master", DType::kF32, {3, 5, 7, 11}}, random);
  AddTensor(state, {"row", "master", DType::kF64, {1, 4099}}, random);
  AddTensor(state, {"scalar", "master", DType::kF32, {}}, random);
  AddTensor(state, {"none", "master", DType::kF32, {0, 8}}, random);
  AddTensor(state, {"narrow", "weight", DType::kBF16, {513}}, random);
  return state;
}

constexpr int64_t kLeastChunk = int64_t{16} << 10;  ///< For which LimitsOf speaks.

class MemoryShardTest : public ::testing::Test {
 protected:
  std::unique_ptr<Writer> MakeWriter(int64_t chunk_bytes, const std::string& root = "") {
    auto writer =
        Writer::Create({.root = root, .name = "w0", .codec_threads = 2, .chunk_bytes = chunk_bytes},
                       WriterStats());
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    return *std::move(writer);
  }

  static std::vector<StoredBox> Boxes(const std::vector<BoxView>& views) {
    std::vector<StoredBox> boxes;
    for (const BoxView& view : views) {
      boxes.push_back(view.stored);
    }
    return boxes;
  }

  /// One part of the whole state, through memory that may have held another.
  static std::shared_ptr<MemoryShard> Save(Writer& writer,
                                           const std::vector<BoxView>& views,
                                           bool compress,
                                           std::shared_ptr<MemoryShard> memory = nullptr) {
    memory = memory == nullptr ? std::make_shared<MemoryShard>() : std::move(memory);
    const auto snapshot = writer.Snapshot({.step = 7,
                                           .generation = 2,
                                           .wait = testing::kHang,
                                           .deferred = true,
                                           .memory = memory,
                                           .compress = compress},
                                          views);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status().ToString();
    const auto part = writer.Wait(Soon());
    EXPECT_TRUE(part.ok()) << part.status().ToString();
    return memory;
  }

  /// As a holder has it: the description encoded, the bytes alone. `sensible`: chunks are of a size
  /// for which LimitsOf speaks.
  static Result<std::shared_ptr<MemoryShard>> Received(const MemoryShard& part,
                                                       const std::vector<StoredBox>& boxes,
                                                       bool sensible) {
    const Bytes description = EncodeMemoryShard(part.part);
    const PartLimits limits = LimitsOf(boxes);
    if (sensible) {
      EXPECT_LE(static_cast<int64_t>(description.size()), limits.description);
      EXPECT_LE(part.part.file.bytes, limits.bytes);
    }
    EXPECT_EQ(part.part.raw_bytes, limits.raw_bytes);
    auto copy = std::make_shared<MemoryShard>();
    HEDDLE_RETURN_IF_ERROR(copy->memory.Reserve(part.part.file.bytes));
    std::ranges::copy(part.bytes(), copy->memory.data());
    HEDDLE_ASSIGN_OR_RETURN(copy->part, DecodeMemoryShard(description));
    HEDDLE_RETURN_IF_ERROR(CheckMemoryShard(copy->part, boxes));
    return copy;
  }
};

TEST_F(MemoryShardTest, EveryBitComesBackFromAnySplit) {
  Random random(TestSeed());
  for (const bool compress : {false, true}) {
    for (const int64_t chunk_bytes : {int64_t{64}, int64_t{4000}, kLeastChunk, int64_t{1} << 20}) {
      SCOPED_TRACE(fmt::format("compress {} chunks of {}", compress, chunk_bytes));
      const State state = OddState(random);
      const size_t workers = 1 + random.Below(3);
      const auto pieces = RandomPieces(state, workers, 5, random);
      const auto writer = MakeWriter(chunk_bytes);
      std::vector<std::shared_ptr<const MemoryShard>> parts;
      for (size_t worker = 0; worker < workers; ++worker) {
        std::vector<Bytes> held;
        const auto views = ViewsOf(state, pieces, worker, held);
        const auto boxes = Boxes(views);
        auto received =
            Received(*Save(*writer, views, compress), boxes, chunk_bytes >= kLeastChunk);
        ASSERT_TRUE(received.ok()) << received.status().ToString();
        parts.push_back(*std::move(received));
      }
      const auto reader = ReaderOver(parts);
      ASSERT_TRUE(reader.ok()) << reader.status().ToString();
      ExpectReads(**reader, state, RandomPieces(state, 1, 7, random), 3);
    }
  }
}

TEST_F(MemoryShardTest, MemoryIsUsedAgainAndGrows) {
  Random random(TestSeed());
  const auto writer = MakeWriter(1 << 20);
  auto memory = std::make_shared<MemoryShard>();
  for (const int64_t rows : {3, 900, 40, 2000}) {
    for (const bool compress : {true, false}) {
      State state;
      AddTensor(state, {"w", "master", DType::kF32, {rows, 1000}}, random);
      const std::vector<Piece> whole = {{.tensor = 0, .box = WholeBox({rows, 1000}), .worker = 0}};
      std::vector<Bytes> held;
      const auto views = ViewsOf(state, whole, 0, held);
      memory = Save(*writer, views, compress, memory);
      EXPECT_GE(memory->memory.size(), memory->part.file.bytes);
      const auto reader = ReaderOver({memory});
      ASSERT_TRUE(reader.ok()) << reader.status().ToString();
      ExpectReads(**reader, state, whole, 1);
    }
  }
}

TEST_F(MemoryShardTest, UncompressedElementsAreCopiedOnce) {
  Random random(3);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {300, 1000}}, random);
  std::vector<Bytes> held;
  const auto views =
      ViewsOf(state, {{.tensor = 0, .box = WholeBox({300, 1000}), .worker = 0}}, 0, held);
  const auto memory = Save(*MakeWriter(1 << 20), views, false);
  EXPECT_EQ(memory->part.file.bytes, 300 * 1000 * 4);
  EXPECT_TRUE(std::ranges::equal(memory->bytes(), state.bytes[0]));
}

TEST_F(MemoryShardTest, AFileCanBeWrittenByTheSameWriter) {
  const TemporaryFolder folder;
  Random random(5);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {10, 10}}, random);
  std::vector<Bytes> held;
  const auto views =
      ViewsOf(state, {{.tensor = 0, .box = WholeBox({10, 10}), .worker = 0}}, 0, held);
  const auto writer = MakeWriter(1 << 20, folder.path());
  Save(*writer, views, true);
  EXPECT_FALSE(FileExists(folder.path() + "/" + TemporaryFolderName(7, 2)));
  ASSERT_TRUE(writer->Snapshot({.step = 7, .generation = 2}, views).ok());
  EXPECT_TRUE(writer->Wait(Soon()).ok());
  EXPECT_TRUE(FileExists(folder.path() + "/" + TemporaryFolderName(7, 2) + "/w0.g2.h5"));
  EXPECT_EQ(MakeWriter(1 << 20)->Snapshot({.step = 7, .generation = 2}, views).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(MemoryShardTest, EveryDamagedByteIsNoticed) {
  Random random(TestSeed());
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {100, 100}}, random);
  const std::vector<Piece> whole = {{.tensor = 0, .box = WholeBox({100, 100}), .worker = 0}};
  std::vector<Bytes> held;
  const auto views = ViewsOf(state, whole, 0, held);
  for (const bool compress : {false, true}) {
    const auto memory = Save(*MakeWriter(4096), views, compress);
    const auto reader = ReaderOver({memory});
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    for (int round = 0; round < 50; ++round) {
      const auto at = random.Below(static_cast<size_t>(memory->part.file.bytes));
      std::byte& byte = memory->memory.data()[at];
      const std::byte before = byte;
      byte ^= static_cast<std::byte>(1 + random.Below(255));
      Bytes out(40000);
      const Status status = (*reader)->Read(state.tensors[0].key(), WholeBox({100, 100}), out);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << "byte " << at;
      EXPECT_THAT(status.message(), HasSubstr("the snapshot of step 7"));
      byte = before;
    }
    ExpectReads(**reader, state, whole, 1);
  }
}

TEST_F(MemoryShardTest, AHostileDescriptionIsRefused) {
  Random random(9);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {100, 100}}, random);
  AddTensor(state, {"w", "exp_avg", DType::kF32, {100, 100}}, random);
  std::vector<Bytes> held;
  const auto views = ViewsOf(state,
                             {{.tensor = 0, .box = WholeBox({100, 100}), .worker = 0},
                              {.tensor = 1, .box = WholeBox({100, 100}), .worker = 0}},
                             0, held);
  const auto boxes = Boxes(views);
  for (const bool compress : {false, true}) {
    const FilePart good = Save(*MakeWriter(4096), views, compress)->part;
    EXPECT_TRUE(CheckMemoryShard(good, boxes).ok());
    const std::vector<std::pair<const char*, std::function<void(FilePart&)>>> changes = {
        {"a box is missing", [](FilePart& part) { part.boxes.pop_back(); }},
        {"a box twice", [](FilePart& part) { part.boxes[1] = part.boxes[0]; }},
        {"another tensor", [](FilePart& part) { part.boxes[0].tensor.name = "v"; }},
        {"another type", [](FilePart& part) { part.boxes[0].tensor.dtype = DType::kI32; }},
        {"another shape",
         [](FilePart& part) {
           part.boxes[0].tensor.shape = {100, 101};
         }},
        {"another box",
         [](FilePart& part) {
           part.boxes[0].record.box.extent = {99, 100};
         }},
        {"other raw bytes", [](FilePart& part) { ++part.raw_bytes; }},
        {"rounded", [](FilePart& part) { part.boxes[0].record.stored_as = DType::kBF16; }},
        {"derived", [](FilePart& part) { part.boxes[0].record.derived_from = "exp_avg"; }},
        {"elements as they are, of another length",
         [](FilePart& part) {
           part.boxes[0].record.raw = true;
           --part.boxes[0].record.chunks[0].bytes;
         }},
        {"another file", [](FilePart& part) { part.boxes[0].record.file = 1; }},
        {"no chunks", [](FilePart& part) { part.boxes[0].record.chunks.clear(); }},
        {"a chunk too few", [](FilePart& part) { part.boxes[0].record.chunks.pop_back(); }},
        {"a chunk before the bytes",
         [](FilePart& part) { part.boxes[0].record.chunks[0].address = -1; }},
        {"a chunk after the bytes",
         [](FilePart& part) { part.boxes[0].record.chunks[0].address = part.file.bytes; }},
        {"a chunk at the end of all",
         [](FilePart& part) { part.boxes[0].record.chunks[0].address = INT64_MAX; }},
        {"a long chunk", [](FilePart& part) { part.boxes[0].record.chunks[0].bytes = INT64_MAX; }},
        {"an empty chunk", [](FilePart& part) { part.boxes[0].record.chunks[0].bytes = 0; }},
        {"a chunk shape of zero",
         [](FilePart& part) {
           part.boxes[0].record.chunk = {0, 100};
         }},
        {"a chunk shape of another rank", [](FilePart& part) { part.boxes[0].record.chunk = {1}; }},
        {"fewer bytes", [](FilePart& part) { part.file.bytes = 10; }}};
    for (const auto& [what, change] : changes) {
      FilePart part = good;
      change(part);
      EXPECT_EQ(CheckMemoryShard(part, boxes).code(), StatusCode::kDataLoss)
          << what << " compress " << compress;
    }
  }
}

TEST_F(MemoryShardTest, ADescriptionIsTakenWholeOrNotAtAll) {
  Random random(TestSeed());
  const State state = OddState(random);
  std::vector<Bytes> held;
  const auto views = ViewsOf(state, RandomPieces(state, 1, 5, random), 0, held);
  const auto boxes = Boxes(views);
  const FilePart part = Save(*MakeWriter(4096), views, /*compress=*/true)->part;
  const Bytes description = EncodeMemoryShard(part);
  const auto whole = DecodeMemoryShard(description);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_EQ(EncodeMemoryShard(*whole), description);
  for (size_t size = 0; size < description.size(); ++size) {
    const auto cut = DecodeMemoryShard(std::span(description).first(size));
    EXPECT_EQ(cut.status().code(), StatusCode::kDataLoss) << size;
  }
  Bytes longer = description;
  longer.push_back(std::byte{0});
  EXPECT_EQ(DecodeMemoryShard(longer).status().code(), StatusCode::kDataLoss);
  for (int round = 0; round < 2000; ++round) {  // Whatever is let through stays within the bytes.
    Bytes damaged = description;
    damaged[random.Below(damaged.size())] ^= static_cast<std::byte>(1 + random.Below(255));
    const auto decoded = DecodeMemoryShard(damaged);
    if (decoded.ok() && CheckMemoryShard(*decoded, boxes).ok()) {
      for (const FilePart::PartBox& box : decoded->boxes) {
        for (const ChunkRecord& chunk : box.record.chunks) {
          EXPECT_GE(chunk.address, 0);
          EXPECT_LE(chunk.address, decoded->file.bytes - chunk.bytes);
        }
      }
    }
  }
}

TEST_F(MemoryShardTest, ChunksThatAreNotEncodedAreNoCheckpoint) {
  Random random(9);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {10, 10}}, random);
  std::vector<Bytes> held;
  const auto views =
      ViewsOf(state, {{.tensor = 0, .box = WholeBox({10, 10}), .worker = 0}}, 0, held);
  Manifest manifest;
  const FilePart part = Save(*MakeWriter(4096), views, false)->part;
  manifest.files.push_back(part.file);
  manifest.files[0].hash = std::string(kHexDigits, '0');
  manifest.tensors.push_back(
      {.info = state.tensors[0], .digest = {}, .boxes = {part.boxes[0].record}});
  const Status status = ValidateManifest(manifest);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("not encoded"));
}

TEST_F(MemoryShardTest, ARoundedBoxIsRefusedThoughItsChunksWouldFit) {
  State state;
  state.tensors.push_back({"w", "master", DType::kF32, {100, 100}});
  state.bytes.emplace_back(40000);  // Zeros: next to nothing when compressed.
  std::vector<Bytes> held;
  const auto views =
      ViewsOf(state, {{.tensor = 0, .box = WholeBox({100, 100}), .worker = 0}}, 0, held);
  const auto boxes = Boxes(views);
  FilePart part = Save(*MakeWriter(4096), views, /*compress=*/true)->part;
  ASSERT_TRUE(CheckMemoryShard(part, boxes).ok());
  part.boxes[0].record.stored_as = DType::kBF16;
  EXPECT_EQ(CheckMemoryShard(part, boxes).code(), StatusCode::kDataLoss);
}

TEST_F(MemoryShardTest, AReadBeyondThePartIsRefused) {
  Random random(10);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {10, 10}}, random);
  std::vector<Bytes> held;
  const auto views =
      ViewsOf(state, {{.tensor = 0, .box = WholeBox({10, 10}), .worker = 0}}, 0, held);
  const auto memory = Save(*MakeWriter(4096), views, /*compress=*/false);
  ChunkRecord& last = memory->part.boxes[0].record.chunks.back();
  Bytes out(400);
  const int64_t end = memory->part.file.bytes - last.bytes;
  for (const int64_t beyond : {1, 1000}) {
    last.address = end + beyond;
    const auto reader = ReaderOver({memory});
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    const Status status = (*reader)->Read(state.tensors[0].key(), WholeBox({10, 10}), out);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << beyond;
    EXPECT_THAT(status.message(), HasSubstr("bytes wanted at"));
  }
}

TEST_F(MemoryShardTest, ATensorOfMoreBytesThanCanBeCountedIsRefused) {
  Random random(11);
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {10}}, random);
  std::vector<Bytes> held;
  const auto views = ViewsOf(state, {{.tensor = 0, .box = WholeBox({10}), .worker = 0}}, 0, held);
  FilePart part = Save(*MakeWriter(4096), views, /*compress=*/false)->part;
  ASSERT_TRUE(ValidateMemoryShard(part).ok());
  part.boxes[0].tensor.shape = {int64_t{1} << 60};
  EXPECT_TRUE(ValidateMemoryShard(part).ok());
  part.boxes[0].tensor.shape = {(int64_t{1} << 60) + 1};
  EXPECT_EQ(ValidateMemoryShard(part).code(), StatusCode::kDataLoss);
}

TEST_F(MemoryShardTest, LimitsLeaveRoomForWhatDoesNotCompress) {
  Random random(TestSeed());
  State state;
  for (int64_t n = 1; n <= 4; ++n) {  // Noise, in boxes that just need another chunk.
    const int64_t elements = n * kLeastChunk / 8 * 2 + 1;
    state.tensors.push_back({fmt::format("t{}", n), "master", DType::kU8, {elements}});
    Bytes bytes(static_cast<size_t>(elements));
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.Below(256)); });
    state.bytes.push_back(std::move(bytes));
  }
  std::vector<Bytes> held;
  const auto views = ViewsOf(state, RandomPieces(state, 1, 1, random), 0, held);
  const auto boxes = Boxes(views);
  const auto memory = Save(*MakeWriter(2 * kLeastChunk), views, /*compress=*/true);
  ASSERT_GT(memory->part.file.bytes, memory->part.raw_bytes) << "it does not compress";
  const auto received = Received(*memory, boxes, /*sensible=*/true);
  EXPECT_TRUE(received.ok()) << received.status().ToString();
}

}  // namespace
}  // namespace heddle::checkpoint
