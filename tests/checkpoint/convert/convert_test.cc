/// Converting between formats, against the elements themselves.
#include "checkpoint/convert/convert.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>

#include "base/tensor/half.h"
#include "checkpoint/convert/cast.h"
#include "checkpoint/convert/diff.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

/// Writes `state` through the format's sink, in pieces of random sizes.
Status WriteModel(const std::string& format,
                  const std::string& path,
                  const State& state,
                  const std::string& config,
                  Random& random) {
  HEDDLE_ASSIGN_OR_RETURN(const Format* found, FindFormat(format));
  SinkRequest request;
  request.path = path;
  request.config = config;
  request.threads = 2;
  for (const TensorInfo& info : state.tensors) {
    request.tensors.push_back(
        {.name = info.name, .role = info.role, .dtype = info.dtype, .shape = info.shape});
  }
  HEDDLE_ASSIGN_OR_RETURN(auto sink, found->create(std::move(request)));
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    std::span<const std::byte> left = state.bytes[t];
    const auto element = static_cast<size_t>(SizeOf(state.tensors[t].dtype));
    while (!left.empty()) {
      const size_t most = left.size() / element;
      const size_t now = std::min<size_t>(most, 1 + random.Below(1 << 20)) * element;
      HEDDLE_RETURN_IF_ERROR(sink->Append(left.first(now)));
      left = left.subspan(now);
    }
  }
  return sink->Finish();
}

/// Every tensor, read whole and by a random box, is that of `state`.
void ExpectHolds(const std::string& path, const State& state, Random& random) {
  const auto source = OpenModel(path);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  ASSERT_EQ((*source)->tensors().size(), state.tensors.size());
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < (*source)->tensors().size(); ++i) {
    places[(*source)->tensors()[i].name] = i;
  }
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    const TensorInfo& info = state.tensors[t];
    ASSERT_TRUE(places.contains(info.name)) << info.name;
    const size_t place = places[info.name];
    EXPECT_EQ((*source)->tensors()[place].dtype, info.dtype);
    EXPECT_EQ((*source)->tensors()[place].shape, info.shape);
    Bytes whole(state.bytes[t].size());
    ASSERT_TRUE((*source)->Read(place, WholeBox(info.shape), whole).ok()) << info.name;
    EXPECT_TRUE(whole == state.bytes[t]) << info.name;
    const auto boxes = RandomSplit(WholeBox(info.shape), 5, random);
    const Box& box = boxes[random.Below(boxes.size())];
    Bytes part(static_cast<size_t>(ElementCount(box.extent) * SizeOf(info.dtype)));
    ASSERT_TRUE((*source)->Read(place, box, part).ok()) << info.name;
    if (part.size() < (size_t{1} << 20)) {
      EXPECT_TRUE(part == Extract(state.bytes[t], info, box)) << info.name << ToString(box);
    }
  }
}

State RandomModel(Random& random) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kU8};
  State state;
  for (int i = 0; i < 12; ++i) {
    Shape shape;
    for (size_t d = random.Below(4); d > 0; --d) {
      shape.push_back(static_cast<int64_t>(random.Below(40)));
    }
    AddTensor(state,
              {.name = fmt::format("model.{}", i),
               .role = "master",
               .dtype = kTypes[random.Below(5)],
               .shape = shape},
              random);
  }
  return state;
}

TEST(ConvertTest, RandomModelsTravelThroughEveryFormat) {
  const uint64_t seed = TestSeed();
  for (uint64_t round = 0; round < 20; ++round) {
    Random random(seed + round);
    const TemporaryFolder folder;
    const State state = RandomModel(random);
    std::string before = folder.path() + "/first";
    const Status written = WriteModel("safetensors", before, state, "", random);
    ASSERT_TRUE(written.ok()) << written.ToString();
    ExpectHolds(before, state, random);
    for (const char* const to : {"native", "safetensors", "native"}) {
      const std::string after = before + "-" + to;
      const auto summary =
          Convert(before, after,
                  {.to = to, .dtype = {}, .max_shard_bytes = 4000, .threads = 2, .progress = {}});
      ASSERT_TRUE(summary.ok()) << to << " " << before << ": " << summary.status().ToString();
      ExpectHolds(after, state, random);
      const auto difference = Diff(before, after);
      ASSERT_TRUE(difference.ok()) << difference.status().ToString();
      EXPECT_TRUE(difference->equal);
      before = after;
    }
    const auto damages = Verify(before);
    ASSERT_TRUE(damages.ok());
    EXPECT_TRUE(damages->empty());
  }
}

TEST(ConvertTest, TensorsOfManyTilesAndBatches) {
  Random random(3);
  State state;
  AddTensor(state, {.name = "long", .role = "master", .dtype = DType::kBF16, .shape = {21'000'001}},
            random);
  AddTensor(state,
            {.name = "wide", .role = "master", .dtype = DType::kF32, .shape = {3, 3'000'000}},
            random);
  AddTensor(state, {.name = "tall", .role = "master", .dtype = DType::kF32, .shape = {700'000, 3}},
            random);
  const TemporaryFolder folder;
  const std::string first = folder.path() + "/a";
  ASSERT_TRUE(WriteModel("safetensors", first, state, "", random).ok());
  const std::string native = folder.path() + "/b";
  ASSERT_TRUE(
      Convert(first, native, {.to = "native", .dtype = {}, .threads = 2, .progress = {}}).ok());
  ExpectHolds(native, state, random);
  EXPECT_TRUE(Verify(native)->empty()) << "no digest has what chunks are padded with";
  const std::string last = folder.path() + "/c";
  int64_t seen = -1;  // The first call says what was there before.
  const auto summary = Convert(
      native, last, {.to = "safetensors", .dtype = {}, .progress = [&](int64_t done, int64_t all) {
                       EXPECT_GT(done, seen);
                       EXPECT_LE(done, all);
                       seen = done;
                     }});
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(seen, summary->bytes);
  ExpectHolds(last, state, random);
  EXPECT_EQ(*ReadFile(first + "/model.safetensors", 1 << 30),
            *ReadFile(last + "/model.safetensors", 1 << 30));
}

TEST(ConvertTest, DifferencesAreMeasured) {
  Random random(5);
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, std::vector<float> values, const char* tensor) {
    State state;
    AddTensor(state, {.name = tensor, .role = "master", .dtype = DType::kF32, .shape = {4}},
              random);
    std::memcpy(state.bytes[0].data(), values.data(), 16);
    EXPECT_TRUE(WriteModel("safetensors", folder.path() + "/" + name, state, "", random).ok());
    return folder.path() + "/" + name;
  };
  const std::string a = write("a", {1, 2, 3, 4}, "x");
  const std::string b = write("b", {1, 2.5, 3, 3}, "x");
  const std::string c = write("c", {1, 2, std::nanf(""), 4}, "x");
  const std::string d = write("d", {1, 2, 3, 4}, "y");
  const auto ab = Diff(a, b);
  ASSERT_TRUE(ab.ok());
  EXPECT_FALSE(ab->equal);
  EXPECT_EQ(ab->tensors[0].max_abs, 1);
  EXPECT_EQ(ab->tensors[0].mean_abs, 0.375);
  EXPECT_TRUE(std::isinf(Diff(a, c)->tensors[0].max_abs));
  EXPECT_TRUE(std::isinf(Diff(c, a)->tensors[0].max_abs));
  EXPECT_TRUE(Diff(c, c)->equal);
  const auto ad = Diff(a, d);
  EXPECT_FALSE(ad->equal);
  EXPECT_EQ(ad->tensors[0].what, "only in A");
  EXPECT_EQ(ad->tensors[1].what, "only in B");
}

TEST(CastTest, HalvesAreThoseOfTheStandard) {
  const auto to_f16 = [](float value) {
    uint16_t bits = 0;
    const Status status = Cast(std::as_bytes(std::span(&value, 1)), DType::kF32,
                               std::as_writable_bytes(std::span(&bits, 1)), DType::kF16);
    return status.ok() ? bits : uint16_t{0xFFFF};
  };
  EXPECT_EQ(to_f16(1.0F), 0x3C00);
  EXPECT_EQ(to_f16(-2.0F), 0xC000);
  EXPECT_EQ(to_f16(65504.0F), 0x7BFF);
  EXPECT_EQ(to_f16(65519.0F), 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F), 0xFFFF);         // Refused.
  EXPECT_EQ(to_f16(1.0F + 0x1p-11F), 0x3C00);  // A tie goes to even.
  EXPECT_EQ(to_f16(1.0F + 3 * 0x1p-11F), 0x3C02);
  EXPECT_EQ(to_f16(0x1p-24F), 0x0001);
  EXPECT_EQ(to_f16(0x1p-25F), 0x0000);
  EXPECT_EQ(to_f16(3 * 0x1p-25F), 0x0002);
  EXPECT_EQ(to_f16(0x1p-14F - 0x1p-26F), 0x0400);  // Rounds up to the first normal number.
  EXPECT_EQ(to_f16(-0.0F), 0x8000);
  // Every half survives the way through fp32 and, where it fits, every bf16 does.
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      float wide = 0;
      uint16_t back = 0;
      ASSERT_TRUE(Cast(std::as_bytes(std::span(&bits, 1)), type,
                       std::as_writable_bytes(std::span(&wide, 1)), DType::kF32)
                      .ok());
      ASSERT_TRUE(Cast(std::as_bytes(std::span(&wide, 1)), DType::kF32,
                       std::as_writable_bytes(std::span(&back, 1)), type)
                      .ok());
      if (std::isnan(wide)) {
        float again = 0;
        ASSERT_TRUE(Cast(std::as_bytes(std::span(&back, 1)), type,
                         std::as_writable_bytes(std::span(&again, 1)), DType::kF32)
                        .ok());
        ASSERT_TRUE(std::isnan(again));
      } else {
        ASSERT_EQ(back, bits);
      }
    }
  }
}

TEST(ConvertTest, TheSameBytesOfOtherTypesAreOtherNumbers) {
  Random random(7);
  const TemporaryFolder folder;
  const auto write = [&](const char* name, DType dtype) {
    State state;
    AddTensor(state, {.name = "x", .role = "master", .dtype = dtype, .shape = {2}}, random);
    const uint16_t bits[] = {0x3C00, 0x3C00};  // 1 in fp16, 2^-7 in bf16.
    std::memcpy(state.bytes[0].data(), bits, sizeof(bits));
    EXPECT_TRUE(WriteModel("safetensors", folder.path() + "/" + name, state, "", random).ok());
    return folder.path() + "/" + name;
  };
  const auto difference = Diff(write("half", DType::kF16), write("brain", DType::kBF16));
  ASSERT_TRUE(difference.ok()) << difference.status().ToString();
  EXPECT_FALSE(difference->equal);
  EXPECT_EQ(difference->tensors[0].max_abs, 1 - 0x1p-7);
}

/// Larger than what conversion and comparison hold at once.
TEST(ConvertTest, TheLastElementOfALargeTensorCounts) {
  constexpr int64_t kElements = (int64_t{4} << 20) + 3;
  Random random(9);
  const TemporaryFolder folder;
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {kElements}}, random);
  state.tensors.push_back({"w", "weight", DType::kBF16, {kElements}});
  state.bytes.emplace_back(state.bytes[0].size() / 2);
  RoundFromF32(state.bytes[0], state.bytes[1], DType::kBF16);
  const std::string same = folder.path() + "/same";
  const std::string other = folder.path() + "/other";
  ASSERT_TRUE(WriteModel("native", same, state, "", random).ok());
  state.bytes[1][state.bytes[1].size() - 2] ^= std::byte{1};
  ASSERT_TRUE(WriteModel("native", other, state, "", random).ok());
  const auto difference = Diff(same, other);
  ASSERT_TRUE(difference.ok()) << difference.status().ToString();
  EXPECT_FALSE(difference->equal);
  const std::vector<std::pair<std::string, std::string>> cases = {{same, "master"}, {other, ""}};
  for (const auto& [path, source] : cases) {
    const std::string target = path + "-again";
    const auto summary = Convert(path, target, {.to = "native", .dtype = {}, .progress = {}});
    ASSERT_TRUE(summary.ok()) << summary.status().ToString();
    const auto manifest = LoadManifest(target);
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    EXPECT_EQ(manifest->Find({"w", "weight"})->boxes[0].derived_from, source);
    EXPECT_TRUE(Diff(path, target)->equal);
  }
}

TEST(ConvertTest, ACopyOfAnotherShapeIsStored) {
  Random random(10);
  const TemporaryFolder folder;
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {40, 30}}, random);
  state.tensors.push_back({"w", "weight", DType::kBF16, {20, 60}});
  state.bytes.emplace_back(state.bytes[0].size() / 2);
  RoundFromF32(state.bytes[0], state.bytes[1], DType::kBF16);
  const std::string first = folder.path() + "/a";
  ASSERT_TRUE(WriteModel("native", first, state, "", random).ok());
  const std::string second = folder.path() + "/b";
  const auto summary = Convert(first, second, {.to = "native", .dtype = {}, .progress = {}});
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(LoadManifest(second)->Find({"w", "weight"})->boxes[0].derived_from, "");
  EXPECT_TRUE(Diff(first, second)->equal);
}

TEST(CastTest, DoublesBecomeTheNearestFloat) {
  const auto to_float = [](double value) {
    float out = 0;
    EXPECT_TRUE(Cast(std::as_bytes(std::span(&value, 1)), DType::kF64,
                     std::as_writable_bytes(std::span(&out, 1)), DType::kF32)
                    .ok());
    return out;
  };
  EXPECT_EQ(to_float(1.0 + 0x1p-24), 1.0F) << "a tie goes to even";
  EXPECT_EQ(to_float(1.0 + 0x1p-24 + 0x1p-50), 1.0F + 0x1p-23F);
  EXPECT_EQ(to_float(1.0 + 0x1p-25), 1.0F);
  EXPECT_EQ(to_float(-1.0 - 3 * 0x1p-25), -1.0F - 0x1p-23F);
}

TEST(CastTest, DoublesAreRoundedOnce) {
  const auto to_bf16 = [](double value) {
    uint16_t bits = 0;
    EXPECT_TRUE(Cast(std::as_bytes(std::span(&value, 1)), DType::kF64,
                     std::as_writable_bytes(std::span(&bits, 1)), DType::kBF16)
                    .ok());
    return bits;
  };
  EXPECT_EQ(to_bf16(1.0), 0x3F80);
  // Just above and below a tie of bf16, by less than a float shows: rounding twice goes to even.
  EXPECT_EQ(to_bf16(1.0 + 0x1p-8 + 0x1p-40), 0x3F81);
  EXPECT_EQ(to_bf16(1.0 + 3 * 0x1p-8 - 0x1p-40), 0x3F81);
  EXPECT_EQ(to_bf16(-1.0 - 0x1p-8 - 0x1p-40), 0xBF81);
  // On a tie: to even, up or down.
  EXPECT_EQ(to_bf16(1.0 + 0x1p-8), 0x3F80);
  EXPECT_EQ(to_bf16(1.0 + 3 * 0x1p-8), 0x3F82);
  EXPECT_EQ(to_bf16(std::numeric_limits<double>::infinity()), 0x7F80);
  const double huge = 1e300;
  float out = 0;
  EXPECT_EQ(Cast(std::as_bytes(std::span(&huge, 1)), DType::kF64,
                 std::as_writable_bytes(std::span(&out, 1)), DType::kF32)
                .code(),
            StatusCode::kOutOfRange);
}

TEST(ConvertTest, ACopyThatIsItsMasterRoundedIsNotStoredAgain) {
  Random random(8);
  const TemporaryFolder folder;
  State state;
  for (const char* const name : {"follows", "differs", "half"}) {
    AddTensor(state, {name, "master", DType::kF32, {300, 700}}, random);
  }
  for (size_t t = 0; t < 3; ++t) {
    const DType type = t == 2 ? DType::kF16 : DType::kBF16;
    state.tensors.push_back({state.tensors[t].name, "weight", type, {300, 700}});
    state.bytes.emplace_back(state.bytes[t].size() / 2);
    RoundFromF32(state.bytes[t], state.bytes.back(), type);
  }
  state.bytes[4].back() ^= std::byte{1};
  const std::string first = folder.path() + "/a";
  const std::string second = folder.path() + "/b";
  ASSERT_TRUE(WriteModel("native", first, state, "", random).ok());
  const auto summary = Convert(first, second, {.to = "native", .dtype = {}, .progress = {}});
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  const auto reader = Reader::Open(second);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const auto source_of = [&](const char* name) {
    return (*reader)->manifest().Find({name, "weight"})->boxes[0].derived_from;
  };
  EXPECT_EQ(source_of("follows"), "master");
  EXPECT_EQ(source_of("differs"), "");
  EXPECT_EQ(source_of("half"), "master");
  ExpectReads(**reader, state, RandomPieces(state, 1, 4, random), 2);
  EXPECT_TRUE(Diff(first, second)->equal);
  EXPECT_TRUE(Verify(second)->empty());
  // Weights travel to formats of one element type a tensor from the master.
  const std::string foreign = folder.path() + "/c";
  ASSERT_TRUE(Convert(second, foreign, {.to = "safetensors", .dtype = {}, .progress = {}}).ok());
  EXPECT_TRUE(Diff(second, foreign)->equal);
  // A copy of what is no fp32 master any more is stored.
  const std::string narrow = folder.path() + "/d";
  ASSERT_TRUE(
      Convert(second, narrow, {.to = "native", .dtype = DType::kBF16, .progress = {}}).ok());
  const auto manifest = LoadManifest(narrow);
  ASSERT_TRUE(manifest.ok());
  for (const TensorRecord& tensor : manifest->tensors) {
    EXPECT_EQ(tensor.boxes[0].derived_from, "");
  }
}

TEST(ConvertTest, WeightsThatDoNotFitAreRefusedByName) {
  Random random(6);
  const TemporaryFolder folder;
  State state;
  AddTensor(state, {.name = "loud", .role = "master", .dtype = DType::kF32, .shape = {1}}, random);
  const float value = 70000;
  std::memcpy(state.bytes[0].data(), &value, sizeof(value));
  ASSERT_TRUE(WriteModel("safetensors", folder.path() + "/a", state, "", random).ok());
  const auto summary = Convert(folder.path() + "/a", folder.path() + "/b",
                               {.to = "safetensors", .dtype = DType::kF16, .progress = {}});
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.status().code(), StatusCode::kOutOfRange);
  EXPECT_THAT(summary.status().message(), HasSubstr("'loud'"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace heddle::checkpoint
