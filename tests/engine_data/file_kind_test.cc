/// \file
/// Files of other kinds, made by hand from their formats' documents, and bare ids beside them.
#include "engine/data/file_kind.h"

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace heddle::data {
namespace {

using std::string_literals::operator""s;

std::string Kind(const std::string& content) {
  return std::string(
      KindOfFile(AsBytes(content), static_cast<int64_t>(content.size())).value_or(""));
}

template <typename T>
std::string Bare(const std::vector<T>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
}

TEST(FileKindTest, KnownKindsAreNamed) {
  EXPECT_EQ(Kind("\x93NUMPY\x01\0v\0{'descr': '<u2'}"s), "a NumPy array");
  EXPECT_EQ(Kind("PK\x03\x04\x14\0"s), "a zip archive (as NumPy's .npz and PyTorch's files are)");
  EXPECT_EQ(Kind("\x1f\x8b\x08\0\0\0\0\0"s), "compressed by gzip");
  EXPECT_EQ(Kind("\x28\xb5\x2f\xfd\x04"s), "compressed by zstd");
  EXPECT_EQ(Kind("BZh91AY&SY"s), "compressed by bzip2");
  EXPECT_EQ(Kind("\xfd\x37zXZ\0\0"s), "compressed by xz");
  EXPECT_EQ(Kind("PAR1\x15\x04"s), "a Parquet file");
  EXPECT_EQ(Kind("\x89HDF\r\n\x1a\n\0"s), "an HDF5 file");
  EXPECT_EQ(Kind("SQLite format 3\0\x10"s), "an SQLite database");
  EXPECT_EQ(Kind("MMIDIDX\0\0\x01"s),
            "an index of Megatron-LM, whose ids are in the .bin file beside it");
  EXPECT_EQ(Kind("\x02\0\0\0\0\0\0\0{}"s), "a safetensors file");
  const std::vector<int32_t> gpt2 = {20240520, 1, 5};
  const std::vector<int32_t> llama = {20240801, 1, 5};
  EXPECT_EQ(Kind(Bare(gpt2)), "a file of llm.c, with a header of 1024 bytes");
  EXPECT_EQ(Kind(Bare(llama)), "a file of llm.c, with a header of 1024 bytes");
}

TEST(FileKindTest, ShortBeginningsAndBareIdsAreNone) {
  for (const std::string& content : {""s, "P"s, "\x1f\x8b"s, "\x1f\x8b\x08\xff"s, "BZh9"s,
                                     "\x02\0\0\0\0\0\0\0["s, "\xff\0\0\0\0\0\0\0{\""s}) {
    EXPECT_EQ(Kind(content), "") << content;
  }
  std::mt19937 random(1);
  for (int file = 0; file < 100000; ++file) {
    std::vector<uint16_t> ids(16);
    for (uint16_t& id : ids) {
      id = static_cast<uint16_t>(random() % 50257);
    }
    ASSERT_EQ(Kind(Bare(ids)), "");
  }
}

TEST(FileKindTest, TheWidthOfIdsShowsInTheirUpperHalves) {
  std::vector<uint16_t> two(64);
  std::iota(two.begin(), two.end(), uint16_t{50000});
  const std::vector<uint32_t> four(two.begin(), two.end());
  const std::vector<int64_t> eight(two.begin(), two.end());
  const auto width = [](const std::string& content, int64_t token_bytes) {
    return WidthOfIds(AsBytes(content), token_bytes);
  };
  EXPECT_EQ(width(Bare(two), 2), 2);
  EXPECT_EQ(width(Bare(four), 2), 4);
  EXPECT_EQ(width(Bare(eight), 2), 8);
  EXPECT_EQ(width(Bare(four), 4), 4);
  EXPECT_EQ(width(Bare(eight), 4), 8);
  EXPECT_EQ(width(Bare(four).substr(4), 2), 2) << "too few to tell";
  EXPECT_EQ(width(std::string(4096, '\0'), 2), 2) << "zeros alone do not tell";
  std::vector<uint32_t> one_large = four;
  one_large.back() = 1 << 16;
  EXPECT_EQ(width(Bare(one_large), 2), 2);
}

}  // namespace
}  // namespace heddle::data
