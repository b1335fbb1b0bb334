/// \file
/// Goal: what is left out, because it follows from something else, comes back bit for bit, and what
/// does not follow is stored; what is stored rounded says so. Method: random states and splits, the
/// rule by which a box may be left out told anew from the pieces, hostile manifests.
#include <algorithm>
#include <functional>

#include <gmock/gmock.h>

#include "base/tensor/half.h"
#include "checkpoint/codec/codec.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/digest.h"
#include "checkpoint/read/inspect.h"
#include "checkpoint/read/verify.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

/// The elements of an fp32 tensor as a 16-bit float has them.
Bytes Rounded(const Bytes& master, DType type) {
  Bytes narrow(master.size() / 2);
  RoundFromF32(master, narrow, type);
  return narrow;
}

/// Tensors "w": the master, moments and a copy of the master in `copy`.
State MixedState(const Shape& shape, DType copy, Random& random) {
  State state;
  AddTensor(state, {"w", "exp_avg", DType::kF32, shape}, random);
  AddTensor(state, {"w", "exp_avg_sq", DType::kF32, shape}, random);
  AddTensor(state, {"w", "master", DType::kF32, shape}, random);
  state.tensors.push_back({"w", "weight", copy, shape});
  state.bytes.push_back(Rounded(state.bytes[2], copy));
  return state;
}
constexpr size_t kMaster = 2;
constexpr size_t kCopy = 3;

/// The copy is cut as its master is, or finer, or otherwise; by the same workers, or by others.
std::vector<Piece> MixedPieces(const State& state, size_t workers, Random& random) {
  std::vector<Piece> pieces;
  for (const Piece& piece : RandomPieces(state, workers, 5, random)) {
    if (piece.tensor != kCopy) {
      pieces.push_back(piece);
    }
  }
  if (random.Below(4) == 0) {
    for (const Piece& piece : RandomPieces(state, workers, 5, random)) {
      if (piece.tensor == kCopy) {
        pieces.push_back(piece);
      }
    }
    return pieces;
  }
  const size_t held = pieces.size();
  for (size_t i = 0; i < held; ++i) {
    if (pieces[i].tensor != kMaster) {
      continue;
    }
    const size_t worker = random.Below(5) == 0 ? random.Below(workers) : pieces[i].worker;
    for (const Box& box : RandomSplit(pieces[i].box, 2, random)) {
      pieces.push_back({.tensor = kCopy, .box = box, .worker = worker});
    }
  }
  return pieces;
}

/// The rule: the same worker holds a box of the master that contains the copy's.
bool MayBeDerived(const Piece& copy, const std::vector<Piece>& pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return piece.tensor == kMaster && piece.worker == copy.worker && Contains(piece.box, copy.box);
  });
}

const BoxRecord& RecordOf(const TensorRecord& tensor, const Box& box) {
  const auto found = std::find_if(tensor.boxes.begin(), tensor.boxes.end(),
                                  [&](const BoxRecord& record) { return record.box == box; });
  EXPECT_NE(found, tensor.boxes.end()) << ToString(box);
  return *found;
}

class DerivedTest : public ::testing::Test {
 protected:
  /// Saves, and opens what was saved.
  std::unique_ptr<Reader> SaveAndOpen(SaveSetup setup,
                                      const State& state,
                                      const std::vector<Piece>& pieces) {
    setup.root = folder_.path();
    const auto saved = Save(setup, state, pieces, metrics_);
    EXPECT_TRUE(saved.ok()) << saved.status().ToString();
    if (!saved.ok()) {
      return nullptr;
    }
    auto reader = Reader::Open(saved->path);
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    return reader.ok() ? *std::move(reader) : nullptr;
  }

  static std::vector<Damage> DamageOf(const std::string& path) {
    const auto damage = Verify(path);
    EXPECT_TRUE(damage.ok()) << damage.status().ToString();
    return damage.ok() ? *damage : std::vector<Damage>{};
  }

  const TemporaryFolder folder_;
  metrics::Registry metrics_;
};

TEST_F(DerivedTest, ACopyIsLeftOutWhereverItsWriterHoldsTheMasterAndReadsBitForBit) {
  Random random(TestSeed());
  int derived = 0;
  int stored = 0;
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const DType type = random.Below(2) == 0 ? DType::kBF16 : DType::kF16;
    const State state = MixedState({random.Between(1, 60), random.Between(1, 70)}, type, random);
    const SaveSetup setup{.root = {},
                          .step = round,
                          .generation = round,
                          .workers = 1 + random.Below(3),
                          .chunk_bytes = int64_t{64} << random.Below(10),
                          .staging_limit_bytes = round % 4 == 0 ? 0 : int64_t{1} << 40,
                          .codec_threads = 1 + static_cast<int>(random.Below(3))};
    const auto pieces = MixedPieces(state, setup.workers, random);
    const auto reader = SaveAndOpen(setup, state, pieces);
    ASSERT_NE(reader, nullptr);
    const Manifest& manifest = reader->manifest();
    const TensorRecord& copy = *manifest.Find({"w", "weight"});
    for (const Piece& piece : pieces) {
      if (piece.tensor == kCopy) {
        const BoxRecord& record = RecordOf(copy, piece.box);
        EXPECT_EQ(record.derived_from, MayBeDerived(piece, pieces) ? "master" : "");
        EXPECT_EQ(record.chunks.empty(), MayBeDerived(piece, pieces));
        ++(record.chunks.empty() ? derived : stored);
      }
    }
    EXPECT_EQ(copy.digest,
              DigestBox(state.bytes[kCopy], 2, copy.info.shape, WholeBox(copy.info.shape)));
    ExpectReads(*reader, state, RandomPieces(state, 1, 6, random),
                1 + static_cast<int>(random.Below(3)));
    if (HasFatalFailure()) {
      return;
    }
    if (round % 10 == 0) {
      EXPECT_TRUE(DamageOf(reader->path()).empty());
    }
  }
  EXPECT_GT(derived, 100);
  EXPECT_GT(stored, 30);
}

TEST_F(DerivedTest, OneBitThatDiffersStoresItsBox) {
  Random random(TestSeed());
  State state = MixedState({64, 50}, DType::kBF16, random);
  const auto changed = static_cast<int64_t>(random.Below(64 * 50));
  state.bytes[kCopy][static_cast<size_t>(changed) * 2] ^= std::byte{1};
  std::vector<Piece> pieces;
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    for (int64_t row = 0; row < 64; row += 16) {
      pieces.push_back({.tensor = t, .box = {{row, 0}, {16, 50}}, .worker = 0});
    }
  }
  const auto reader = SaveAndOpen({.root = {}, .chunk_bytes = 256}, state, pieces);
  ASSERT_NE(reader, nullptr);
  for (const BoxRecord& box : reader->manifest().Find({"w", "weight"})->boxes) {
    const bool differs = changed / 50 / 16 == box.box.offset[0] / 16;
    EXPECT_EQ(box.derived_from, differs ? "" : "master") << ToString(box.box);
  }
  ExpectReads(*reader, state, RandomPieces(state, 1, 6, random), 2);
  EXPECT_TRUE(DamageOf(reader->path()).empty());
  EXPECT_THAT(InspectText(reader->manifest()), HasSubstr("derived from master (3 of 4 boxes)"));
}

TEST_F(DerivedTest, NumbersAtTheEdgesOfTheTypesAreDerivedToo) {
  constexpr uint32_t kEdges[] = {0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x7F7FFFFF,
                                 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF,
                                 0x3F808000, 0x3F818000, 0x477FEFFF, 0x477FF000, 0x33000000};
  for (const DType type : {DType::kBF16, DType::kF16}) {
    Random random(1);
    State state = MixedState({15}, type, random);
    std::memcpy(state.bytes[kMaster].data(), kEdges, sizeof(kEdges));
    state.bytes[kCopy] = Rounded(state.bytes[kMaster], type);
    std::vector<Piece> pieces;
    for (size_t t = 0; t < state.tensors.size(); ++t) {
      pieces.push_back({.tensor = t, .box = WholeBox({15}), .worker = 0});
    }
    const auto step = static_cast<int64_t>(type);
    auto reader = SaveAndOpen({.root = {}, .step = step}, state, pieces);
    ASSERT_NE(reader, nullptr);
    EXPECT_EQ(reader->manifest().Find({"w", "weight"})->boxes[0].derived_from, "master");
    ExpectReads(*reader, state, pieces, 1);
    // A NaN with another payload is another number here: stored.
    state.bytes[kCopy][7 * 2] ^= std::byte{1};
    reader = SaveAndOpen({.root = {}, .step = step + 10}, state, pieces);
    ASSERT_NE(reader, nullptr);
    EXPECT_EQ(reader->manifest().Find({"w", "weight"})->boxes[0].derived_from, "");
    ExpectReads(*reader, state, pieces, 1);
  }
}

TEST_F(DerivedTest, VerifyComputesTheElementsAndComparesTheirDigest) {
  Random random(2);
  const State state = MixedState({30, 20}, DType::kBF16, random);
  const auto reader = SaveAndOpen({.root = {}}, state, RandomPieces(state, 1, 1, random));
  ASSERT_NE(reader, nullptr);
  Manifest manifest = reader->manifest();
  EXPECT_THAT(InspectText(manifest), HasSubstr("derived from master"));
  EXPECT_THAT(InspectJson(manifest), HasSubstr(R"("stored_bytes":0)"));
  EXPECT_THAT(InspectJson(manifest), HasSubstr(R"("derived_from":"master")"));
  ASSERT_TRUE(DamageOf(reader->path()).empty());
  manifest.tensors[kCopy].digest.low += 1;
  manifest.tensors[kCopy].boxes[0].digest.low += 1;
  ASSERT_TRUE(
      WriteFileAtomically(reader->path() + "/" + kManifestName, EncodeManifest(manifest)).ok());
  const auto damage = DamageOf(reader->path());
  ASSERT_EQ(damage.size(), 1U);
  EXPECT_EQ(damage[0].tensor, "w (weight)");
  EXPECT_THAT(damage[0].what, HasSubstr("derived from role 'master'"));
}

TEST_F(DerivedTest, ManifestsThatDeriveFromNothingAreRefused) {
  Random random(3);
  const State state = MixedState({30, 20}, DType::kBF16, random);
  const auto reader =
      SaveAndOpen({.root = {}, .round_moments = true}, state, RandomPieces(state, 1, 1, random));
  ASSERT_NE(reader, nullptr);
  const Manifest& good = reader->manifest();
  ASSERT_TRUE(ValidateManifest(good).ok());
  ASSERT_TRUE(ParseManifest(EncodeManifest(good)).ok());
  const auto refused = [&](const std::function<void(Manifest&)>& change, const std::string& word) {
    Manifest manifest = good;
    change(manifest);
    const auto parsed = ParseManifest(EncodeManifest(manifest));
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << word;
    EXPECT_THAT(parsed.status().message(), HasSubstr(word));
  };
  const auto copy = [](Manifest& manifest) -> BoxRecord& {
    return manifest.tensors[kCopy].boxes[0];
  };
  refused([&](Manifest& m) { copy(m).derived_from = "weight"; }, "derived from role 'weight'");
  refused([&](Manifest& m) { copy(m).derived_from = "nobody"; }, "not there");
  refused([&](Manifest& m) { m.tensors[kCopy].info.name = "x"; }, "not there");
  refused([&](Manifest& m) { m.tensors[kCopy].info.dtype = DType::kI64; }, "int64");
  refused([&](Manifest& m) { copy(m).dataset = "/weight/w"; }, "elements of its own");
  refused([&](Manifest& m) { copy(m).chunks.push_back({.address = 0, .bytes = 1, .hash = 0}); },
          "elements of its own");
  refused([&](Manifest& m) { copy(m).stored_as = DType::kBF16; }, "elements of its own");
  refused([&](Manifest& m) { copy(m).chunk = {1, 1}; }, "elements of its own");
  refused(
      [&](Manifest& m) {
        m.tensors[kCopy].info.shape = {20, 30};
        copy(m).box.extent = {20, 30};
      },
      "cannot be derived");
  refused([&](Manifest& m) { copy(m).derived_from.clear(); }, "chunk shape");
  refused([&](Manifest& m) { m.tensors[0].boxes[0].stored_as = DType::kF16; }, "stored as fp16");
  refused([&](Manifest& m) { m.tensors[0].info.dtype = DType::kF64; }, "stored as bf16");
  const std::string text = EncodeManifest(good);
  for (const auto& [from, to] : {std::pair{R"("nearest-even")", R"("toward-zero")"},
                                 {R"("derived":{"role":"master")", R"("derived":{"role":"")"},
                                 {R"("derived":{"role")", R"("derived":{"rule")"},
                                 {R"("stored_as":"bf16")", R"("stored_as":"fp8")"}}) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_EQ(ParseManifestBody(changed).status().code(), StatusCode::kDataLoss) << to;
  }
}

TEST_F(DerivedTest, TensorsThatNameTheSameBytesAreReadEachInItsOwnShape) {
  Random random(4);
  State state;
  AddTensor(state, {"a", "master", DType::kF32, {64}}, random);
  AddTensor(state, {"b", "master", DType::kBF16, {128}}, random);
  const auto reader = SaveAndOpen({.root = {}}, state, RandomPieces(state, 1, 1, random));
  ASSERT_NE(reader, nullptr);
  Manifest manifest = reader->manifest();
  manifest.tensors[1].boxes[0].chunks = manifest.tensors[0].boxes[0].chunks;
  ASSERT_TRUE(
      WriteFileAtomically(reader->path() + "/" + kManifestName, EncodeManifest(manifest)).ok());
  const auto again = Reader::Open(reader->path());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  Bytes a(256);
  Bytes b(256);
  const std::vector<ReadRequest> requests = {
      {.key = {"a", "master"}, .box = WholeBox({64}), .out = a},
      {.key = {"b", "master"}, .box = WholeBox({128}), .out = b}};
  ASSERT_TRUE((*again)->ReadBoxes(requests, 1).ok());
  EXPECT_TRUE(a == state.bytes[0]);
}

TEST_F(DerivedTest, MomentsAreRoundedWhenAskedForAndSaySo) {
  Random random(TestSeed());
  State state = MixedState({90, 70}, DType::kBF16, random);
  const auto pieces = RandomPieces(state, 2, 4, random);
  const auto exact = SaveAndOpen({.root = {}, .step = 1, .workers = 2}, state, pieces);
  const auto reader =
      SaveAndOpen({.root = {}, .step = 2, .workers = 2, .chunk_bytes = 6000, .round_moments = true},
                  state, pieces);
  ASSERT_TRUE(exact != nullptr && reader != nullptr);
  EXPECT_LT(reader->manifest().StoredBytes(), exact->manifest().StoredBytes() * 4 / 5);
  EXPECT_EQ(LossyNote(exact->manifest()), "");
  EXPECT_EQ(LossyNote(reader->manifest()),
            "rounded to bf16 when they were saved: exp_avg, exp_avg_sq");
  EXPECT_THAT(InspectText(reader->manifest()), HasSubstr("rounded to bf16"));
  EXPECT_THAT(InspectJson(reader->manifest()), HasSubstr(R"("lossy":true)"));
  for (const size_t moment : {size_t{0}, size_t{1}}) {
    WidenToF32(Rounded(state.bytes[moment], DType::kBF16), DType::kBF16, state.bytes[moment]);
    EXPECT_EQ(reader->manifest().tensors[moment].digest,
              DigestBox(state.bytes[moment], 4, {90, 70}, WholeBox({90, 70})))
        << "the digest is that of what is read";
  }
  ExpectReads(*reader, state, RandomPieces(state, 1, 6, random), 2);
  EXPECT_TRUE(DamageOf(reader->path()).empty());
}

TEST_F(DerivedTest, OnlyFloatsAreRoundedAndOnlyToBf16) {
  auto writer = Writer::Create({.root = folder_.path(), .name = "w0"}, metrics_);
  ASSERT_TRUE(writer.ok());
  const Bytes bytes(32);
  BoxView view{.stored = {"w", "exp_avg", DType::kF32, {8}, WholeBox({8})}, .bytes = bytes};
  view.stored.stored_as = DType::kF16;
  const SaveRequest request{.step = 1, .generation = 1};
  EXPECT_EQ((*writer)->Snapshot(request, {{view}}).status().code(), StatusCode::kInvalidArgument);
  view.stored.stored_as = DType::kBF16;
  view.stored.dtype = DType::kI32;
  EXPECT_EQ((*writer)->Snapshot(request, {{view}}).status().code(), StatusCode::kInvalidArgument);
}

/// A master and its copy, larger than what is compared, verified or read at once, in one box.
TEST_F(DerivedTest, EveryPieceOfALargeCopyIsCompared) {
  constexpr int64_t kRows = 2100;
  constexpr int64_t kColumns = 2050;
  constexpr size_t kElements = kRows * kColumns;
  static_assert(kElements > size_t{4} << 20, "larger than a tile of Verify");
  Random random(TestSeed());
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {kRows, kColumns}}, random);
  state.tensors.push_back({"w", "weight", DType::kBF16, {kRows, kColumns}});
  state.bytes.push_back(Rounded(state.bytes[0], DType::kBF16));
  std::vector<Piece> pieces;
  for (size_t t = 0; t < 2; ++t) {
    pieces.push_back({.tensor = t, .box = WholeBox({kRows, kColumns}), .worker = 0});
  }
  auto reader = SaveAndOpen({.root = {}, .step = 1}, state, pieces);
  ASSERT_NE(reader, nullptr);
  const auto derived_from = [&] {
    return reader->manifest().Find({"w", "weight"})->boxes[0].derived_from;
  };
  EXPECT_EQ(derived_from(), "master");
  EXPECT_TRUE(DamageOf(reader->path()).empty());
  int64_t step = 1;
  for (const size_t element : {kElements - 1, size_t{300} << 10, random.Below(kElements)}) {
    std::byte& byte = state.bytes[1][element * 2];
    byte ^= std::byte{1};
    reader = SaveAndOpen({.root = {}, .step = ++step}, state, pieces);
    ASSERT_NE(reader, nullptr);
    EXPECT_EQ(derived_from(), "") << "element " << element;
    Bytes read(state.bytes[1].size());
    ASSERT_TRUE(reader->Read({"w", "weight"}, WholeBox({kRows, kColumns}), read).ok());
    EXPECT_TRUE(read == state.bytes[1]) << "element " << element;
    byte ^= std::byte{1};
  }
  EXPECT_TRUE(DamageOf(reader->path()).empty());
}

TEST_F(DerivedTest, OnlyTheCopyFollowsAndOnlyFromTheMaster) {
  Random random(TestSeed());
  State state;
  // The moments come after the master and have boxes as large: they are not what a copy follows.
  AddTensor(state, {"w", "master", DType::kF32, {40, 30}}, random);
  AddTensor(state, {"w", "z_moment", DType::kF32, {40, 30}}, random);
  state.tensors.push_back({"w", "weight", DType::kBF16, {40, 30}});
  state.bytes.push_back(Rounded(state.bytes[0], DType::kBF16));
  // Of another role, though its elements are the master's rounded.
  state.tensors.push_back({"w", "a_shadow", DType::kBF16, {40, 30}});
  state.bytes.push_back(state.bytes[2]);
  // A copy of another shape has no master here.
  AddTensor(state, {"v", "master", DType::kF32, {30, 40}}, random);
  state.tensors.push_back({"v", "weight", DType::kBF16, {15, 40}});
  Bytes half = Rounded(state.bytes[4], DType::kBF16);
  half.resize(half.size() / 2);
  state.bytes.push_back(half);
  const auto reader = SaveAndOpen({.root = {}}, state, RandomPieces(state, 1, 1, random));
  ASSERT_NE(reader, nullptr);
  const auto source_of = [&](const char* name, const char* role) {
    return reader->manifest().Find({name, role})->boxes[0].derived_from;
  };
  EXPECT_EQ(source_of("w", "weight"), "master");
  EXPECT_EQ(source_of("w", "a_shadow"), "");
  EXPECT_EQ(source_of("v", "weight"), "");
  ExpectReads(*reader, state, RandomPieces(state, 1, 5, random), 2);
}

TEST_F(DerivedTest, ACopyOfAMasterThatIsRoundedIsStored) {
  Random random(TestSeed());
  const State state = MixedState({40, 30}, DType::kF16, random);
  std::vector<Bytes> held;
  auto views = ViewsOf(state, RandomPieces(state, 1, 1, random), 0, held);
  ASSERT_EQ(views[kMaster].stored.role, "master");
  views[kMaster].stored.stored_as = DType::kBF16;
  auto writer = Writer::Create({.root = folder_.path(), .name = "w0"}, metrics_);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  ASSERT_TRUE((*writer)->Snapshot({.step = 1, .generation = 1}, views).ok());
  const auto part = (*writer)->Wait(After(std::chrono::seconds(60)));
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_EQ(part->boxes[kCopy].record.derived_from, "") << "bf16 is not what fp16 follows from";
}

/// Readers ignore what lies beyond the box, but equal states make equal files.
TEST_F(DerivedTest, ChunksAtABoxesEdgeArePaddedWithZeros) {
  Random random(TestSeed());
  State state;
  const Shape shape = {37, 41};
  AddTensor(state, {"w", "master", DType::kF32, shape}, random);
  const auto reader = SaveAndOpen({.root = {}, .chunk_bytes = 2048, .codec_threads = 1}, state,
                                  {{.tensor = 0, .box = WholeBox(shape), .worker = 0}});
  ASSERT_NE(reader, nullptr);
  const Manifest& manifest = reader->manifest();
  const BoxRecord& box = manifest.tensors[0].boxes[0];
  const auto file = OpenRegularFile(reader->path() + "/" + manifest.files[0].name);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const ChunkGrid grid(box.box.extent, box.chunk);
  int64_t padding = 0;
  for (int64_t i = 0; i < grid.count(); ++i) {
    Bytes stored(static_cast<size_t>(box.chunks[static_cast<size_t>(i)].bytes));
    ASSERT_TRUE((*file)->ReadAt(box.chunks[static_cast<size_t>(i)].address, stored).ok());
    std::vector<uint32_t> elements(static_cast<size_t>(grid.chunk_elements()));
    ASSERT_TRUE(ChunkDecoder().Decode(stored, 4, std::as_writable_bytes(std::span(elements))).ok());
    const Box clipped = grid.Clipped(i);
    for (size_t k = 0; k < elements.size(); ++k) {
      const auto row = static_cast<int64_t>(k) / box.chunk[1];
      const auto column = static_cast<int64_t>(k) % box.chunk[1];
      if (row >= clipped.extent[0] || column >= clipped.extent[1]) {
        ASSERT_EQ(elements[k], 0U) << "chunk " << i << " element " << k;
        ++padding;
      }
    }
  }
  EXPECT_GT(padding, 0);
}

}  // namespace
}  // namespace heddle::checkpoint
