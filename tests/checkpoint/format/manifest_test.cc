/// \file
/// Goal: a manifest survives its text, and no text that is not one gets through. What a checksum
/// would hide is tried without it.
#include "checkpoint/format/manifest.h"

#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/hash.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest Sample() {
  Manifest manifest{
      .step = 40, .generation = 3, .created = 1.7e9, .job = TestJob(), .files = {}, .tensors = {}};
  manifest.files = {{"w0.g3.h5", 5000, std::string(32, 'a')},
                    {"w1.g3.h5", 4000, std::string(32, 'b')}};
  TensorRecord tensor{
      .info = {"w", "master", DType::kF32, {4, 6}}, .digest = {11, 22}, .boxes = {}};
  tensor.boxes.push_back({.box = {{0, 0}, {2, 6}},
                          .chunk = {2, 3},
                          .file = 0,
                          .dataset = "/master/w@0,0",
                          .digest = {1, 2},
                          .chunks = {{2048, 30, 77}, {2100, 31, UINT64_MAX}}});
  tensor.boxes.push_back({.box = {{2, 0}, {2, 6}},
                          .chunk = {2, 6},
                          .file = 1,
                          .dataset = "/master/w@2,0",
                          .digest = {10, 20},
                          .chunks = {{2048, 50, 0}}});
  manifest.tensors.push_back(tensor);
  manifest.tensors.push_back(
      {.info = {"z", "master", DType::kBF16, {0}}, .digest = {}, .boxes = {}});
  return manifest;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ManifestTest, TextRoundTrip) {
  const Manifest manifest = Sample();
  const std::string text = EncodeManifest(manifest);
  EXPECT_THAT(text, HasSubstr(R"({"format":"heddle-checkpoint","version":3,"checksum":")"));
  const auto back = ParseManifest(text);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->step, 40);
  EXPECT_EQ(back->generation, 3);
  EXPECT_EQ(back->job, manifest.job);
  EXPECT_EQ(back->files, manifest.files);
  EXPECT_EQ(back->tensors, manifest.tensors);
  EXPECT_EQ(back->Find({"w", "master"})->digest, (Digest{11, 22}));
  EXPECT_EQ(back->Find({"w", "exp_avg"}), nullptr);
  EXPECT_EQ(EncodeManifest(*back), text);
}

TEST(ManifestTest, AnyChangedByteBreaksTheChecksum) {
  const std::string text = EncodeManifest(Sample());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 3, 5, 7}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_EQ(ParseManifest(changed).status().code(), StatusCode::kDataLoss) << i;
    }
    EXPECT_EQ(ParseManifest(text.substr(0, i)).status().code(), StatusCode::kDataLoss) << i;
  }
  EXPECT_FALSE(ParseManifest(text + " ").ok());
}

TEST(ManifestTest, AnotherVersionSaysSo) {
  Manifest manifest = Sample();
  for (const int64_t version : {kFormatVersion - 1, kFormatVersion + 1}) {
    manifest.version = version;
    const Status status = ParseManifest(EncodeManifest(manifest)).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("version {}: this build", version)));
  }
}

TEST(ManifestTest, FieldsThatThisVersionDoesNotKnowAreIgnored) {
  std::string text = EncodeManifest(Sample());
  const size_t at = text.find("\"step\":");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, R"("later":[1,{"deep":null}],)");
  const auto manifest = ParseManifestBody(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(EncodeManifest(*manifest), EncodeManifest(Sample()));
}

struct Lie {
  std::string from;
  std::string to;
  std::string message;  ///< How it begins.
};

const std::vector<Lie> kLies = {
    {R"("name":"w0.g3.h5")", R"("name":"../../etc/passwd")",
     "file '../../etc/passwd': its name, size or hash is not acceptable"},
    {R"("name":"w0.g3.h5")", R"("name":"/etc/passwd")",
     "file '/etc/passwd': its name, size or hash is not acceptable"},
    {R"("name":"w0.g3.h5")", R"("name":"w1.g3.h5")",
     "file 'w1.g3.h5': its name, size or hash is not acceptable"},
    {R"("name":"w0.g3.h5")", R"("name":"MANIFEST.json")",
     "file 'MANIFEST.json': its name, size or hash is not acceptable"},
    {R"("bytes":5000)", R"("bytes":-5000)", "field 'bytes' is negative"},
    {R"("bytes":5000)", R"("bytes":2100)",
     "tensor 'w' (master): a chunk of 31 bytes at 2100 in a file of 2100"},
    {R"("bytes":5000)", R"("bytes":5e3)", "field 'bytes' is a number"},
    {R"("bytes":5000)", R"("bytes":18446744073709551615)", "field 'bytes' is not a 64-bit integer"},
    {R"("bytes":5000)", R"("bytes":1e999)", "not JSON: "},
    {R"("step":40)", R"("step":NaN)", "not JSON: "},
    {R"("step":40)", R"("step":40,"step":41)", "key 'step' twice"},
    {R"("step":40)", R"("steps":40)", "field 'step' is missing"},
    {R"("shape":[4,6])", R"("shape":[4,7])", "tensor 'w' (master): 4 of 28 elements are in no box"},
    {R"("shape":[4,6])", R"("shape":[4,-6])",
     "tensor 'w' (master): name, role or shape [4, -6] is out of bounds"},
    {R"("shape":[4,6])", R"("shape":[4611686018427387904,4611686018427387904])",
     "tensor 'w' (master): name, role or shape [4611686018427387904, 4611686018427387904] is out "
     "of bounds"},
    {R"("shape":[4,6])", R"("shape":[24])",
     "tensor 'w' (master): box [2, 6] from [0, 0] has not the rank of shape [24]"},
    {R"("shape":[4,6])", R"("shape":"4,6")", "field 'shape' is a string"},
    {R"("offset":[2,0])", R"("offset":[1,0])",
     "tensor 'w' (master): boxes [0:2, 0:6] and [1:3, 0:6] overlap"},
    {R"("offset":[2,0])", R"("offset":[9223372036854775807,0])",
     "tensor 'w' (master): box [2, 6] from [9223372036854775807, 0] leaves shape [4, 6]"},
    {R"("extent":[2,6])", R"("extent":[2,5])",
     "tensor 'w' (master): 2 of 24 elements are in no box"},
    {R"("chunk":[2,3])", R"("chunk":[2,0])",
     "tensor 'w' (master): chunk shape [2, 0] for box [0:2, 0:6]"},
    {R"("chunk":[2,3])", R"("chunk":[2,7])",
     "tensor 'w' (master): chunk shape [2, 7] for box [0:2, 0:6]"},
    {R"("chunk":[2,3])", R"("chunk":[1,3])",
     "tensor 'w' (master): 2 chunks of shape [1, 3] for box [0:2, 0:6]"},
    {R"([2048,30,)", R"([4990,30,)",
     "tensor 'w' (master): a chunk of 30 bytes at 4990 in a file of 5000"},
    {R"([2048,30,)", R"([-1,30,)",
     "tensor 'w' (master): a chunk of 30 bytes at -1 in a file of 5000"},
    {R"([2048,30,)", R"([9223372036854775807,30,)",
     "tensor 'w' (master): a chunk of 30 bytes at 9223372036854775807 in a file of 5000"},
    {R"([2048,30,)", R"([2048,0,)",
     "tensor 'w' (master): a chunk of 0 bytes at 2048 in a file of 5000"},
    {R"([2048,30,)", R"([2048,4000,)",
     "tensor 'w' (master): a chunk of 4000 bytes at 2048 in a file of 5000"},
    {R"("file":1)", R"("file":2)", "tensor 'w' (master): file number 2 of 2"},
    {R"("digest":"000000000000000b0000000000000016")",
     R"("digest":"000000000000000b0000000000000017")",
     "tensor 'w' (master): the boxes' digests do not add up to the tensor's"},
    {R"("digest":"000000000000000b0000000000000016")", R"("digest":"0b")",
     "field 'digest' has not 32 digits"},
    {R"("digest":"000000000000000b0000000000000016")",
     R"("digest":"zz0000000000000b0000000000000016")",
     "'zz0000000000000b' is not a hexadecimal number"},
    {R"("dtype":"fp32")", R"("dtype":"fp31")", "unknown element type 'fp31'"},
    {R"("name":"w",)", R"("name":"zz",)", "tensor 'z' (master) is listed twice or out of order"},
    {R"("format":"heddle-checkpoint")", R"("format":"safetensors")", "format 'safetensors'"},
    {R"("plan":")", R"("plan":[[[[[[[[[[[[1]]]]]]]]]]]],"x":")", "nested too deeply"},
};

TEST(ManifestTest, BodiesThatLieAreRefused) {
  const std::string text = EncodeManifest(Sample());
  ASSERT_TRUE(ParseManifestBody(text).ok());
  for (const auto& [from, to, message] : kLies) {
    const auto parsed = ParseManifestBody(Replaced(text, from, to));
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << from << " -> " << to;
    EXPECT_THAT(parsed.status().message(), ::testing::StartsWith(message)) << from << " -> " << to;
  }
  for (const auto& [bad, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "not JSON"},
           {"{", "not JSON"},
           {"[]", "not an object"},
           {"null", "not an object"},
           {"{}", "field 'format' is missing"},
           {"<html>", "not JSON"},
           {"\xFF\xFE", "not JSON"},
           {"{\"format\":1}", "field 'format' is a number"}}) {
    const Status status = ParseManifestBody(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bad;
    EXPECT_THAT(status.message(), ::testing::StartsWith(message)) << bad;
  }
}

/// Each field with a value of another type, or without one.
TEST(ManifestTest, AFieldOfAnotherTypeIsNamed) {
  const std::string text = EncodeManifest(Sample());
  const std::string box = "tensor 'w' (master): ";
  const std::vector<Lie> lies = {
      {R"("files":[{)", R"("files":[7,{)", "a file is no object"},
      {R"("tensors":[{)", R"("tensors":["x",{)", "a tensor is no object"},
      {R"("boxes":[{)", R"("boxes":[null,{)", box + "a box is no object"},
      {R"("files":[)", R"("filez":[)", "field 'files' is missing"},
      {R"("tensors":[)", R"("tensorz":[)", "field 'tensors' is missing"},
      {R"("created":)", R"("created":"yesterday","x":)", "field 'created' is not a number"},
      {R"("created":)", R"("creatad":)", "field 'created' is not a number"},
      {R"("step":40)", R"("step":"40")", "field 'step' is a string"},
      {R"("generation":3)", R"("generation":-3)", "field 'generation' is negative"},
      {R"("samples_consumed":640)", R"("samples_consumed":-1)",
       "field 'samples_consumed' is negative"},
      {R"("plan":")", R"("plan":7,"x":")", "field 'plan' is a number"},
      {R"("extra":")", R"("extra":7,"x":")", "field 'extra' is a number"},
      {R"("job_hash":")", R"("job_hash":7,"x":")", "field 'job_hash' is a number"},
      {R"("model":")", R"("model":7,"x":")", "field 'model' is a number"},
      {R"("shape":[4,6])", R"("shape":[4.5,6])", "field 'shape' is not a 64-bit integer"},
      {R"("shape":[4,6])", R"("shape":["4",6])", "field 'shape' is not a 64-bit integer"},
      {R"("shape":[4,6])", R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])",
       "field 'shape' has 17 dimensions"},
      {R"("role":"master")", R"("role":7)", "field 'role' is a number"},
      {R"("dataset":"/master/w@0,0")", R"("dataset":7)", box + "field 'dataset' is a number"},
      {R"("chunk":[2,3])", R"("chunk":{})", box + "field 'chunk' is a object"},
      {R"("chunks":[[)", R"("chunks":7,"x":[[)", box + "field 'chunks' is a number"},
      {R"("chunks":[[)", R"("chunks":[7,[)", box + "a chunk is not [address, bytes, hash]"},
      {R"([2048,30,")", R"([2048,30,9,")", box + "a chunk is not [address, bytes, hash]"},
      {R"([2048,30,")", R"(["2048",30,")", box + "field 'address' is not a 64-bit integer"},
      {R"([2048,30,")", R"([2048,3.5,")", box + "field 'bytes' is not a 64-bit integer"},
      {R"([2048,30,")", R"([2048,30,"0)", box + "'"},
      {R"("file":0)", R"("file":0,"stored_as":7)", box + "field 'stored_as' is a number"},
      {R"("file":0)", R"("file":0,"stored_as":"fp31")", box + "unknown element type 'fp31'"},
      {R"("file":0)", R"("file":0,"raw":1)", box + "field 'raw' is a number"},
      {R"("file":0)", R"("file":0,"derived":"master")", box + "field 'derived' is a string"},
      {R"("file":0)", R"("file":0,"derived":{"role":"","rounding":"nearest-even"})",
       box + "a box is derived from role ''"},
      {R"("file":0)", R"("file":0,"derived":{"role":"master","rounding":"up"})",
       box + "a box is derived from role 'master' by rounding 'up'"},
  };
  for (const auto& [from, to, message] : lies) {
    const Status status = ParseManifestBody(Replaced(text, from, to)).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << from << " -> " << to;
    EXPECT_THAT(status.message(), ::testing::StartsWith(message)) << from << " -> " << to;
  }
}

TEST(ManifestTest, AHeadThatIsNotOursIsNamed) {
  const std::string text = EncodeManifest(Sample());
  const size_t field = text.find("\"checksum\":\"") + 12;
  const auto message = [](const std::string& changed) {
    return ParseManifest(changed).status().message();
  };
  EXPECT_EQ(message(text.substr(1)), "does not begin as a Heddle manifest");
  EXPECT_EQ(message(""), "does not begin as a Heddle manifest");
  EXPECT_EQ(message(Replaced(text, "\"checksum\"", "\"checksun\"")), "has no checksum");
  // The digits must all be there, and soon.
  EXPECT_EQ(message(text.substr(0, field + 31)), "has no checksum");
  EXPECT_EQ(message(text.substr(0, field + 32)), "the checksum does not match the text");
  EXPECT_EQ(message(Replaced(text, "\"version\":3", "\"version\":3" + std::string(30, ' '))),
            "has no checksum");
}

TEST(ManifestTest, DeepNestingIsRefusedQuickly) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep = R"({"a":)";
    for (int i = 0; i < 200'000; ++i) {
      deep += open;
    }
    const auto parsed = ParseManifestBody(deep);
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss);
  }
}

TEST(ManifestTest, ReportsSurviveTheirTextAndBadOnesAreRefused) {
  FilePart part;
  part.step = 40;
  part.generation = 3;
  part.file = Sample().files[0];
  part.raw_bytes = 48;
  part.seconds = 0.25;
  part.boxes.push_back(
      {.tensor = Sample().tensors[0].info, .record = Sample().tensors[0].boxes[0]});
  part.boxes.push_back(part.boxes[0]);
  part.boxes[1].record.raw = true;
  const std::string text = EncodePart(part);
  const auto back = DecodePart(text);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->boxes, part.boxes);
  EXPECT_EQ(back->file, part.file);
  EXPECT_EQ(back->raw_bytes, 48);
  EXPECT_EQ(back->seconds, 0.25);
  for (size_t i = 0; i < text.size(); i += 7) {
    EXPECT_EQ(DecodePart(text.substr(0, i)).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(DecodePart(Replaced(text, R"("boxes":[{)", R"("boxes":[{},{)")).ok());
  EXPECT_EQ(DecodePart("[]").status().message(), "a writer's report: not an object");
  EXPECT_EQ(DecodePart(Replaced(text, R"("file":{)", R"("file":[{)")).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ManifestTest, NamesThatAreNotTextDoNotThrow) {
  Manifest manifest = Sample();
  manifest.job.job_yaml = "\xFF\xFE";
  const auto back = ParseManifest(EncodeManifest(manifest));
  ASSERT_TRUE(back.ok()) << back.status().ToString();
}

/// What the text cannot say, or says only in a file that nobody writes.
TEST(ManifestTest, StructuresThatLieAreRefused) {
  const Manifest good = Sample();
  ASSERT_TRUE(ValidateManifest(good).ok());
  const auto refused = [&](const char* what, const std::function<void(Manifest&)>& change) {
    Manifest manifest = good;
    change(manifest);
    EXPECT_EQ(ValidateManifest(manifest).code(), StatusCode::kDataLoss) << what;
  };
  const auto box = [](Manifest& m) -> BoxRecord& { return m.tensors[0].boxes[0]; };
  refused("a file before the first", [&](Manifest& m) { box(m).file = -1; });
  refused("the file after the last", [&](Manifest& m) { box(m).file = 2; });
  refused("a short hash", [](Manifest& m) { m.files[0].hash.pop_back(); });
  refused("a long hash", [](Manifest& m) { m.files[0].hash += "a"; });
  refused("a file of -1 bytes that no box lies in", [](Manifest& m) {
    m.files.push_back({"w2.g3.h5", -1, std::string(32, 'c')});
  });
  refused("two files of one name", [](Manifest& m) {
    m.files.push_back({"w1.g3.h5", 4000, std::string(32, 'b')});
  });
  refused("the manifest's own name", [](Manifest& m) {
    m.files.push_back({kManifestName, 4000, std::string(32, 'b')});
  });
  refused("a tensor twice", [](Manifest& m) { m.tensors.insert(m.tensors.begin(), m.tensors[0]); });
  refused("tensors out of order", [](Manifest& m) { std::swap(m.tensors[0], m.tensors[1]); });
  refused("a name too long", [](Manifest& m) { m.tensors[1].info.name = std::string(4097, 'z'); });
  refused("a role too long", [](Manifest& m) { m.tensors[1].info.role = std::string(4097, 'n'); });
  refused("no role", [](Manifest& m) { m.tensors[0].info.role.clear(); });
  refused("too many dimensions",
          [](Manifest& m) { m.tensors[1].info.shape = Shape(kMaxRank + 1, 0); });
  refused("elements in no box", [](Manifest& m) {
    m.tensors[0].boxes.pop_back();
    m.tensors[0].digest = m.tensors[0].boxes[0].digest;
  });
  refused("a digest that is not the sum", [](Manifest& m) { ++m.tensors[0].digest.high; });
  BoxRecord empty;
  empty.box = {{0}, {0}};
  refused("an empty box with a digest", [empty](Manifest& m) mutable {
    m.tensors[1].digest = empty.digest = {1, 0};
    m.tensors[1].boxes.push_back(empty);
  });
  refused("an empty box with a chunk", [empty](Manifest& m) mutable {
    empty.chunks.push_back({.address = 0, .bytes = 1, .hash = 0});
    m.tensors[1].boxes.push_back(empty);
  });
  refused("chunks as they are in memory", [&](Manifest& m) { box(m).raw = true; });
  refused("an empty chunk", [&](Manifest& m) { box(m).chunks[0].bytes = 0; });
  refused("a chunk one byte beyond its file", [&](Manifest& m) {
    box(m).chunks[0].address = m.files[0].bytes - box(m).chunks[0].bytes + 1;
  });
  refused("a chunk longer than its elements can make it",
          [&](Manifest& m) { box(m).chunks[0] = {.address = 0, .bytes = 2000, .hash = 0}; });
  refused("a chunk shape larger than the box", [&](Manifest& m) {
    box(m).chunk = {3, 3};
    box(m).chunks.resize(2);
  });
  Manifest edge = good;
  edge.tensors[1].info.name = std::string(4096, 'z');
  edge.tensors[1].info.shape = Shape(kMaxRank, 0);
  box(edge).chunks[0].address = edge.files[0].bytes - box(edge).chunks[0].bytes;
  EXPECT_TRUE(ValidateManifest(edge).ok()) << ValidateManifest(edge).ToString();
}

TEST(ManifestTest, AChunkIsBoundedBeforeAnybodyAllocatesIt) {
  // One chunk of a whole tensor: its raw size is what a reader would allocate.
  const auto of_elements = [](int64_t count, DType dtype) {
    Manifest manifest = Sample();
    manifest.tensors.resize(1);
    TensorRecord& tensor = manifest.tensors[0];
    tensor.info.dtype = dtype;
    tensor.info.shape = {count};
    tensor.boxes.resize(1);
    tensor.boxes[0].box = {{0}, {count}};
    tensor.boxes[0].chunk = {count};
    tensor.boxes[0].chunks.resize(1);
    tensor.digest = tensor.boxes[0].digest;
    return ValidateManifest(manifest);
  };
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    const int64_t most = kChunkLimit / SizeOf(dtype);
    EXPECT_TRUE(of_elements(most, dtype).ok()) << of_elements(most, dtype).ToString();
    EXPECT_EQ(of_elements(most + 1, dtype).code(), StatusCode::kDataLoss);
    EXPECT_EQ(of_elements(int64_t{1} << 59, dtype).code(), StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace heddle::checkpoint
