/// Safetensors files, against bytes put together by hand.
#include <cstring>

#include <gmock/gmock.h>

#include "checkpoint/formats/format.h"
#include "checkpoint/formats/safetensors_header.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof(length));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) {
    file.push_back(static_cast<char>(i * 7 + 1));
  }
  return file;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) const {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, content).ok());
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ReadsWhatTheFormatsPageDescribes) {
  const std::string path = Write(
      "m.safetensors",
      FileOf(
          R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
          R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
          R"("none":{"dtype":"F16","shape":[0,4],"data_offsets":[26,26]},)"
          R"("mask":{"dtype":"BOOL","shape":[4],"data_offsets":[26,30]}}   )",
          30));
  const auto source = OpenModel(path);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->format(), "safetensors");
  const auto& tensors = (*source)->tensors();
  ASSERT_EQ(tensors.size(), 4U);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "b") {
      Bytes out(8);
      ASSERT_TRUE((*source)->Read(i, {.offset = {0, 1}, .extent = {2, 1}}, out).ok());
      for (size_t k = 0; k < 4; ++k) {  // Elements 1 and 4.
        EXPECT_EQ(static_cast<uint8_t>(out[k]), static_cast<uint8_t>((4 + k) * 7 + 1));
        EXPECT_EQ(static_cast<uint8_t>(out[4 + k]), static_cast<uint8_t>((16 + k) * 7 + 1));
      }
      const Status outside = (*source)->Read(i, {.offset = {0, 2}, .extent = {2, 2}}, out);
      EXPECT_EQ(outside.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(outside.message().rfind(path + ": tensor 'b': box", 0), 0U) << outside.message();
    }
    EXPECT_EQ(tensors[i].name == "mask", !tensors[i].dtype.has_value());
  }
}

TEST(SafetensorsHeaderTest, HostileHeadersAreRefusedWithTheTensorsName) {
  const std::string one = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  struct Case {
    std::string header;
    std::string message;
  };
  std::string deep = R"({"a":{"dtype":)";
  deep.append(1'000'000, '[');
  const std::vector<Case> cases = {
      {"", "does not begin"},
      {" {}", "does not begin"},
      {"[]", "does not begin"},
      {"{", "not JSON"},
      {"{} x", "not JSON"},
      {deep, "tensor 'a', dtype"},
      {"{" + one + "," + one + "}", "overlaps"},
      {"{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "'a' comes twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "hole"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "appended"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "cut short"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "offsets"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "offsets"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "negative"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "not an integer"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]}})", "too large"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "63 bits"},
      {R"({"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}})", "no whole bytes"},
      {R"({"a":{"dtype":"F12","shape":[2],"data_offsets":[0,8]}})", "'F12' is not known"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "no dtype, shape or data_offsets"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "unknown field"},
      {R"({"a":[1]})", "tensor 'a'"},
      {R"({"a":null})", "tensor 'a'"},
      {R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "name has 0 bytes"},
      {R"({"__metadata__":{"a":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "__metadata__"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})",
       "longer list"},
  };
  for (const Case& c : cases) {
    const auto entries = ParseSafetensorsHeader(c.header, 8);
    ASSERT_FALSE(entries.ok()) << c.message;
    EXPECT_EQ(entries.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(entries.status().message(), HasSubstr(c.message)) << c.header.substr(0, 200);
  }
  EXPECT_TRUE(ParseSafetensorsHeader("{" + one + "}", 8).ok());
}

TEST_F(SafetensorsTest, LengthsOfTheHeaderAreCheckedBeforeAnythingIsAllocated) {
  const std::string good = FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{good.size()}, uint64_t{1} << 40, UINT64_MAX}) {
    std::string file = good;
    std::memcpy(file.data(), &length, sizeof(length));
    const auto source = OpenModel(Write("bad.safetensors", file));
    ASSERT_FALSE(source.ok()) << length;
    EXPECT_THAT(source.status().message(), HasSubstr("bad.safetensors"));
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(OpenModel(Write("cut.safetensors", good.substr(0, bytes))).ok()) << bytes;
  }
}

TEST(SafetensorsHeaderTest, LayoutIsThatOfTheFormatsLibrary) {
  const std::vector<OutputTensor> tensors = {
      {.name = "z", .role = {}, .dtype = DType::kBF16, .shape = {3}},
      {.name = "b", .role = {}, .dtype = DType::kF32, .shape = {2}},
      {.name = "a\"\n", .role = {}, .dtype = DType::kF32, .shape = {}},
  };
  const auto layout = LayOutSafetensors(tensors);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->head.size() % 8, 0U);
  const auto entries = ParseSafetensorsHeader(std::string_view(layout->head).substr(8), 4 + 8 + 6);
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  EXPECT_EQ((*entries)[0].tensor.name, "a\"\n");
  EXPECT_EQ((*entries)[1].tensor.name, "b");
  EXPECT_EQ((*entries)[2].tensor.name, "z");
  EXPECT_EQ(layout->begin[0], static_cast<int64_t>(layout->head.size()) + 12);
  EXPECT_EQ(layout->file_bytes, static_cast<int64_t>(layout->head.size()) + 18);
}

}  // namespace
}  // namespace heddle::checkpoint
