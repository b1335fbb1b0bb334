/// \file
/// Goal: every sentence of the refusals of a safetensors header, each bound from both sides, and
/// the header that is written, letter by letter.
#include "checkpoint/formats/safetensors_header.h"

#include <cstring>

#include <gmock/gmock.h>

#include "base/utf8.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& header, int64_t bytes = 8) {
  const auto entries = ParseSafetensorsHeader(header, bytes);
  EXPECT_TRUE(entries.ok() || entries.status().code() == StatusCode::kDataLoss);
  return std::string(entries.status().message());
}

/// A header of one tensor 'a' with these fields.
std::string HeaderOf(const std::string& fields) {
  return R"({"a":{)" + fields + "}}";
}

using Refusals = std::vector<std::pair<std::string, std::string>>;

void ExpectRefused(const Refusals& cases) {
  for (const auto& [header, message] : cases) {
    EXPECT_EQ(Refusal(header), message) << header;
  }
}

TEST(SafetensorsHeaderTest, ARefusalOfAFieldSaysWhatStandsThere) {
  ExpectRefused({
      {HeaderOf(R"("dtype":null)"), "tensor 'a', dtype: null"},
      {HeaderOf(R"("dtype":true)"), "tensor 'a', dtype: true or false"},
      {HeaderOf(R"("dtype":1)"), "tensor 'a', dtype: a number"},
      {HeaderOf(R"("dtype":-1)"), "tensor 'a', dtype: a negative number"},
      {HeaderOf(R"("dtype":1.5)"), "tensor 'a', dtype: a number that is not an integer"},
      {HeaderOf(R"("dtype":{})"), "tensor 'a', dtype: an object"},
      {HeaderOf(R"("dtype":[])"), "tensor 'a', dtype: a list"},
      {HeaderOf(R"("shape":"2")"), "tensor 'a', shape: a text"},
      {HeaderOf(R"("shape":["2"])"), "tensor 'a', shape: a text"},
      {HeaderOf(R"("shape":[[2]])"), "tensor 'a', shape: a list"},
      {HeaderOf(R"("shape":[{}])"), "tensor 'a', shape: an object"},
      {HeaderOf(R"("shape":2)"), "tensor 'a', shape: a number"},
      {HeaderOf(R"("shape":[9223372036854775808])"), "tensor 'a', shape: a number beyond 63 bits"},
      {HeaderOf(R"("data_offsets":[0,8,8])"), "tensor 'a', data_offsets: a longer list"},
      {HeaderOf(R"("shape":[2],"shape":[2])"), "tensor 'a', shape: the field twice"},
      {HeaderOf(R"("data_offsets":[0,8],"data_offsets":[0,8])"),
       "tensor 'a', data_offsets: the field twice"},
      {HeaderOf(R"("":1)"), "tensor 'a': an unknown field"},
      {HeaderOf("\"" + std::string(70, 'f') + "\":1"),
       "tensor 'a', " + std::string(64, 'f') + ": an unknown field"},
      {HeaderOf(R"("shape":[2],"data_offsets":[0,8])"),
       "tensor 'a', data_offsets: no dtype, shape or data_offsets"},
      {HeaderOf(R"("dtype":"F32","data_offsets":[0,8])"),
       "tensor 'a', data_offsets: no dtype, shape or data_offsets"},
      {HeaderOf(R"("data_offsets":[0,8],"dtype":"F32")"),
       "tensor 'a', dtype: no dtype, shape or data_offsets"},
      {HeaderOf(""), "tensor 'a': no dtype, shape or data_offsets"},
  });
}

TEST(SafetensorsHeaderTest, ARefusalOfATensorSaysWhatItLacks) {
  const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  ExpectRefused({
      {R"({"a":1})", "tensor 'a': a number"},
      {R"({"a":"x"})", "tensor 'a': a text"},
      {R"({"a":[]})", "tensor 'a': a list"},
      {a + R"(,"b":1})", "tensor 'b': a number"},
      {R"({"__metadata__":"x"})", "tensor '__metadata__': a text"},
      {R"({"__metadata__":[]})", "tensor '__metadata__': a list"},
      {R"({"__metadata__":{"k":[]}})", "tensor '__metadata__', k: a list"},
      {R"({"__metadata__":{"shape":[1]}})", "tensor '__metadata__', shape: a list"},
      {R"({"__metadata__":{"k":{}}})", "tensor '__metadata__', k: an object"},
      {R"({"__metadata__":{"k":"v"},"b":"x"})", "tensor 'b': a text"},
      {R"({"__metadata__":{"k":"v"},"b":{"k":"v"}})", "tensor 'b', k: an unknown field"},
      {"{" + std::string(3, ' ') + "x", "not JSON at byte 5"},
      {R"({"a":{"dtype":")" + std::string(40, 'T') + R"(","shape":[2],"data_offsets":[0,8]}})",
       "tensor 'a': element type '" + std::string(32, 'T') + "' is not known"},
      {HeaderOf(R"("dtype":"F32","shape":[2],"data_offsets":[0])"),
       "tensor 'a': its offsets do not hold the 8 bytes of F32 [2]"},
      {HeaderOf(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
       "tensor 'a': its offsets do not hold the 8 bytes of F32 [2]"},
      {HeaderOf(R"("dtype":"F4","shape":[15],"data_offsets":[0,7])"),
       "tensor 'a': shape [15] of F4 is too large or no whole bytes"},
      {a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[9,13]}})",
       "tensor 'b' begins at byte 9, 8 expected: it overlaps or leaves a hole"},
      {a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       "the tensors take 12 bytes, the file has 8: it is cut short"},
      {HeaderOf(R"("dtype":"U8","shape":[7],"data_offsets":[0,7])"),
       "the tensors take 7 bytes, the file has 8: something was appended"},
      {a + R"(,"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "tensor 'a' comes twice"},
      {"[]", "the header does not begin with '{'"},
  });
}

TEST(SafetensorsHeaderTest, WhatReachesABoundIsTakenAndWhatExceedsItIsNot) {
  const auto named = [](size_t bytes) {
    return "{\"" + std::string(bytes, 'n') +
           R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  };
  EXPECT_EQ(Refusal(named(4096)), "");
  EXPECT_EQ(Refusal(named(4097)), "a tensor's name has 4097 bytes");
  const auto shaped = [](size_t rank) {
    std::string ones = "2";
    for (size_t d = 1; d < rank; ++d) {
      ones += ",1";
    }
    return HeaderOf(R"("dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,8])");
  };
  EXPECT_EQ(Refusal(shaped(kMaxRank)), "");
  EXPECT_EQ(Refusal(shaped(kMaxRank + 1)), "tensor 'a', shape: a longer list");
  // 2^56 elements of 64 bits are more than a number of bits can be.
  const auto of = [](const char* count) {
    return HeaderOf(fmt::format(R"("dtype":"U8","shape":[{}],"data_offsets":[0,8])", count));
  };
  EXPECT_THAT(Refusal(of("72057594037927935")), HasSubstr("do not hold the 72057594037927935"));
  EXPECT_THAT(Refusal(of("72057594037927936")), HasSubstr("is too large"));
  EXPECT_EQ(Refusal(HeaderOf(R"("dtype":"F4","shape":[16],"data_offsets":[0,8])")), "");
  EXPECT_EQ(Refusal(HeaderOf(R"("dtype":"U8","shape":[2],"data_offsets":[9223372036854775805,)"
                             R"(9223372036854775807])")),
            "tensor 'a' begins at byte 9223372036854775805, 0 expected: it overlaps or leaves a "
            "hole");
}

TEST(SafetensorsHeaderTest, TensorsAreNoMoreThanAModelHas) {
  std::string header = "{";
  for (size_t i = 0; i < kMaxTensors; ++i) {
    header += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  }
  header.back() = '}';
  const auto entries = ParseSafetensorsHeader(header, 0);
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  EXPECT_EQ(entries->size(), kMaxTensors);
  header.back() = ',';
  EXPECT_EQ(Refusal(header + R"("x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0),
            "more than 150000 tensors");
}

TEST(SafetensorsHeaderTest, EntriesComeInTheOrderOfTheirBytes) {
  const auto entries =
      ParseSafetensorsHeader(R"({"c":{"dtype":"I8","shape":[3],"data_offsets":[8,11]},)"
                             R"("last":{"dtype":"F32","shape":[0,7],"data_offsets":[11,11]},)"
                             R"("a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                             R"("first":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                             11);
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  std::string order;
  for (const SafetensorsEntry& entry : *entries) {
    const FileTensor& tensor = entry.tensor;
    EXPECT_EQ(tensor.role, "");
    order += fmt::format("{} {} {} {} {}+{};", tensor.name, tensor.type,
                         tensor.dtype ? DTypeName(*tensor.dtype) : "-", ToString(tensor.shape),
                         entry.begin, tensor.bytes);
    EXPECT_EQ(tensor.stored_bytes, tensor.bytes);
  }
  EXPECT_EQ(order,
            "first F32 fp32 [0] 0+0;a F64 fp64 [1] 0+8;c I8 - [3] 8+3;last F32 fp32 [0, 7] 11+0;");
}

TEST(SafetensorsHeaderTest, TheWrittenHeaderIsTheLibrarysLetterByLetter) {
  const std::vector<OutputTensor> tensors = {
      {.name = "u", .role = {}, .dtype = DType::kU8, .shape = {3}},
      {.name = "h", .role = {}, .dtype = DType::kF16, .shape = {1}},
      {.name = "z", .role = {}, .dtype = DType::kBF16, .shape = {1}},
      {.name = "n", .role = {}, .dtype = DType::kI32, .shape = {1}},
      {.name = "b", .role = {}, .dtype = DType::kF32, .shape = {2, 1}},
      {.name = "a\"", .role = {}, .dtype = DType::kF32, .shape = {}},
      {.name = "d", .role = {}, .dtype = DType::kF64, .shape = {0}},
      {.name = "l", .role = {}, .dtype = DType::kI64, .shape = {1}},
  };
  const auto layout = LayOutSafetensors(tensors);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  std::string json =
      R"({"__metadata__":{"format":"pt"},"l":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("d":{"dtype":"F64","shape":[0],"data_offsets":[8,8]},)"
      R"("a\"":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
      R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[12,20]},)"
      R"("n":{"dtype":"I32","shape":[1],"data_offsets":[20,24]},)"
      R"("z":{"dtype":"BF16","shape":[1],"data_offsets":[24,26]},)"
      R"("h":{"dtype":"F16","shape":[1],"data_offsets":[26,28]},)"
      R"("u":{"dtype":"U8","shape":[3],"data_offsets":[28,31]}})";
  while (json.size() % 8 != 0) {
    json += ' ';
  }
  uint64_t length = 0;
  std::memcpy(&length, layout->head.data(), sizeof(length));
  EXPECT_EQ(length, json.size());
  EXPECT_EQ(layout->head.substr(8), json);
  const auto head = static_cast<int64_t>(layout->head.size());
  EXPECT_EQ(layout->begin, (std::vector<int64_t>{head + 28, head + 26, head + 24, head + 20,
                                                 head + 12, head + 8, head + 8, head}));
  EXPECT_EQ(layout->file_bytes, head + 31);
  EXPECT_EQ(Refusal(json, 31), "");
}

TEST(SafetensorsHeaderTest, AHeaderThatNeedsNoPaddingHasNone) {
  // The name makes the text just as long as it may be without blanks behind it.
  for (size_t bytes = 1; bytes <= 16; ++bytes) {
    const auto layout = LayOutSafetensors(std::vector<OutputTensor>{
        {.name = std::string(bytes, 'n'), .role = {}, .dtype = DType::kU8, .shape = {}}});
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(layout->head.size() % 8, 0U);
    EXPECT_LT(layout->head.size() - layout->head.rfind('}'), 9U) << bytes;
  }
}

TEST(SafetensorsHeaderTest, NamesThatCannotBeStoredAreRefused) {
  const auto refusal = [](const std::vector<std::string>& names) {
    std::vector<OutputTensor> tensors;
    for (const std::string& name : names) {
      tensors.push_back({.name = name, .role = {}, .dtype = DType::kF32, .shape = {1}});
    }
    const auto layout = LayOutSafetensors(tensors);
    EXPECT_TRUE(layout.ok() || layout.status().code() == StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  EXPECT_EQ(refusal({std::string(4096, 'n')}), "");
  for (const std::string& name :
       {std::string(), std::string("__metadata__"), std::string(4097, 'n'), std::string("a\xFF")}) {
    EXPECT_EQ(refusal({"a", name}),
              "tensor '" + ToUtf8(name) + "' (fp32) cannot be stored in a safetensors file");
  }
  EXPECT_EQ(refusal({"a", "b", "a"}), "tensor 'a' comes twice");
}

}  // namespace
}  // namespace heddle::checkpoint
