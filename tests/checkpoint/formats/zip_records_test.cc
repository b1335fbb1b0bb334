/// \file
/// Goal: an archive's records are, field by field, those of the ZIP format (APPNOTE 6.3.10), and a
/// reader looks at each field that it understands.
#include <filesystem>

#include <gmock/gmock.h>

#include "base/system/file.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/formats/pytorch/zip.h"
#include "tests/checkpoint/formats/pytorch_support.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using opcodes::Raw;
using ::testing::HasSubstr;
using namespace std::string_literals;  // NOLINT(google-build-using-namespace): texts with zeros

/// CRC-32 by its definition, bit by bit.
uint32_t Crc(std::string_view text) {
  uint32_t crc = UINT32_MAX;
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0U);
    }
  }
  return ~crc;
}

std::string U16(int64_t number) {
  return Raw(static_cast<uint16_t>(number));
}
std::string U32(int64_t number) {
  return Raw(static_cast<uint32_t>(number));
}

/// From the version that is needed to the second size.
std::string Facts(int64_t version, std::string_view data, int64_t bytes) {
  return U16(version) + U16(0x800) + U16(0) + U16(0) + U16(0x21) + U32(Crc(data)) + U32(bytes) +
         U32(bytes);
}

class ZipRecordsTest : public ::testing::Test {
 protected:
  Status Refusal(const std::string& content) const {
    Spill(path_, content);
    return ReadZipDirectory(**OpenRegularFile(path_)).status();
  }
  std::string Written(const std::vector<std::pair<std::string, std::string>>& entries) const {
    std::filesystem::remove(path_);
    EXPECT_TRUE(WriteArchive(path_, entries).ok());
    return Slurp(path_);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/a.zip";
};

TEST_F(ZipRecordsTest, AnArchiveIsWrittenFieldByField) {
  const std::string one = "first";
  const std::string two(100, 'x');
  const auto local = [](const std::string& name, const std::string& data, size_t padding) {
    return "PK\3\4" + Facts(20, data, static_cast<int64_t>(data.size())) +
           U16(static_cast<int64_t>(name.size())) + U16(static_cast<int64_t>(4 + padding)) + name +
           "FB" + U16(static_cast<int64_t>(padding)) + std::string(padding, 'Z') + data;
  };
  const auto listed = [](const std::string& name, const std::string& data, int64_t header) {
    return "PK\1\2" + U16(45) + Facts(20, data, static_cast<int64_t>(data.size())) +
           U16(static_cast<int64_t>(name.size())) + U16(0) + std::string(10, '\0') + U32(header) +
           name;
  };
  // The data lie at 64 and at 128.
  std::string expected = local("archive/1", one, 64 - 30 - 9 - 4);
  const auto second = static_cast<int64_t>(expected.size());
  expected += local("archive/2", two, 128 - 69 - 30 - 9 - 4);
  const auto offset = static_cast<int64_t>(expected.size());
  EXPECT_EQ(offset, 128 + 100);
  const std::string directory = listed("archive/1", one, 0) + listed("archive/2", two, second);
  expected += directory;
  expected += "PK\5\6" + U32(0) + U16(2) + U16(2) + U32(static_cast<int64_t>(directory.size())) +
              U32(offset) + U16(0);
  EXPECT_EQ(Written({{"1", one}, {"2", two}}), expected);
}

TEST_F(ZipRecordsTest, WhatDoesNotFitInto32BitsStandsIn64) {
  for (const int64_t bytes : {int64_t{0xFFFFFFFE}, int64_t{0xFFFFFFFF}, int64_t{1} << 33}) {
    std::filesystem::remove(path_);
    auto zip = ZipWriter::Create(path_);
    ASSERT_TRUE(zip.ok());
    ASSERT_TRUE(zip->Begin("big", bytes).ok());  // Its data need not come for the records.
    ASSERT_TRUE(zip->Finish().ok());
    const bool large = bytes >= 0xFFFFFFFF;
    const std::string field = large ? U16(1) + U16(16) + Raw(bytes) + Raw(bytes) : "";
    const size_t padding = 64 - 30 - 3 - 4 - field.size();
    const std::string local =
        "PK\3\4" + Facts(large ? 45 : 20, "", std::min(bytes, int64_t{0xFFFFFFFF})) + U16(3) +
        U16(static_cast<int64_t>(field.size() + 4 + padding)) + "big" + field + "FB" +
        U16(static_cast<int64_t>(padding)) + std::string(padding, 'Z');
    const std::string listed = "PK\1\2" + U16(45) +
                               Facts(large ? 45 : 20, "", std::min(bytes, int64_t{0xFFFFFFFF})) +
                               U16(3) + U16(static_cast<int64_t>(field.size())) +
                               std::string(10, '\0') + U32(0) + "big" + field;
    EXPECT_EQ(Slurp(path_), local + listed + "PK\5\6" + U32(0) + U16(1) + U16(1) +
                                U32(static_cast<int64_t>(listed.size())) + U32(64) + U16(0))
        << bytes;
  }
}

TEST_F(ZipRecordsTest, ADirectoryOf65535EntriesHasA64BitEnd) {
  for (const size_t count : {size_t{0xFFFE}, size_t{0xFFFF}}) {
    std::vector<std::pair<std::string, std::string>> entries;
    for (size_t i = 0; i < count; ++i) {
      entries.emplace_back(fmt::format("{}", i), "");
    }
    const std::string content = Written(entries);
    const size_t begin = content.find("PK\1\2");
    const size_t end = content.size() - 22;
    const auto number = static_cast<int64_t>(count);
    const bool large = count == 0xFFFF;
    const size_t end64 = end - (large ? 56 + 20 : 0);
    std::string expected;
    if (large) {
      expected = "PK\6\6" + Raw(uint64_t{44}) + U16(45) + U16(45) + Raw(uint64_t{0}) + Raw(number) +
                 Raw(number) + Raw(static_cast<uint64_t>(end64 - begin)) +
                 Raw(static_cast<uint64_t>(begin)) + "PK\6\7" + U32(0) +
                 Raw(static_cast<uint64_t>(end64)) + U32(1);
    }
    expected += "PK\5\6" + U32(0) + U16(number) + U16(number) +
                U32(static_cast<int64_t>(end64 - begin)) + U32(static_cast<int64_t>(begin)) +
                U16(0);
    EXPECT_EQ(content.substr(end64), expected) << count;
    const auto found = ReadZipDirectory(**OpenRegularFile(path_));
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->size(), count);
  }
}

template <typename T>
std::string Patched(std::string content, size_t at, T value) {
  return content.replace(at, sizeof(T), Raw(value));
}

TEST_F(ZipRecordsTest, EachFieldThatIsUnderstoodIsLookedAt) {
  const std::string content = Written({{"one", "first"}, {"two", "second entry"}});
  const size_t entry = content.find("PK\1\2");
  const size_t end = content.find("PK\5\6");
  const auto refused = [&](const std::string& changed, const std::string& why) {
    const Status status = Refusal(changed);
    EXPECT_FALSE(status.ok()) << why;
    EXPECT_THAT(status.message(), HasSubstr(path_ + ": ")) << why;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  EXPECT_TRUE(Refusal(Patched(content, entry + 34, uint16_t{0xFFFF})).ok()) << "in a zip64 field";
  refused(Patched(content, entry + 34, uint16_t{1}), "entry 'archive/one' is on another disk");
  refused(Patched(content, entry, uint32_t{7}), "the ZIP directory is damaged");
  refused(Patched(content, end + 4, uint16_t{1}), "a ZIP archive on several disks is not read");
  refused(Patched(content, end + 6, uint16_t{1}), "a ZIP archive on several disks is not read");
  refused(Patched(content, end + 8, uint16_t{1}), "a ZIP archive on several disks is not read");
  refused(Patched(content, entry + 10, uint16_t{8}),
          "entry 'archive/one' is compressed (method 8)");
  for (const int flag : {0, 6, 13}) {
    refused(Patched(content, entry + 8, static_cast<uint16_t>(0x800 | 1 << flag)),
            "entry 'archive/one' is encrypted");
  }
  refused(Patched(content, 0, uint32_t{7}),
          "entry 'archive/one' is not where the ZIP directory says");
  refused(Patched(content, 26, uint16_t{10}),
          "entry 'archive/one' is not where the ZIP directory says");
  // An entry may have a comment, and fields of others before the zip64 one.
  const std::string field = U16(7) + U16(2) + "xx" + U16(1) + U16(24) + Raw(uint64_t{5}) +
                            Raw(uint64_t{5}) + Raw(uint64_t{0});
  std::string other = Patched(content, entry + 20, UINT32_MAX);
  other = Patched(other, entry + 24, UINT32_MAX);
  other = Patched(other, entry + 42, UINT32_MAX);
  other = Patched(other, entry + 30, static_cast<uint16_t>(field.size()));
  other = Patched(other, entry + 32, uint16_t{4});
  other.insert(entry + 46 + 11, field + "note");
  other = Patched(other, other.find("PK\5\6") + 12,
                  static_cast<uint32_t>(end - entry + field.size() + 4));
  EXPECT_TRUE(Refusal(other).ok()) << Refusal(other).ToString();
}

TEST_F(ZipRecordsTest, TheEndIsTheRecordWhoseCommentEndsTheFile) {
  const std::string content = Written({{"one", "first"}});
  const size_t end = content.find("PK\5\6");
  const std::string fake = "PK\5\6" + std::string(18, '\0');
  // An end record within the comment of the true one, whose own comment would end elsewhere.
  const auto with = [&](const std::string& comment) {
    return Patched(content, end + 20, static_cast<uint16_t>(comment.size())) + comment;
  };
  for (const std::string& comment :
       {fake + "xx", std::string(65'535, 'c'), "PK\5\6"s, std::string()}) {
    Spill(path_, with(comment));
    const auto found = ReadZipDirectory(**OpenRegularFile(path_));
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->size(), 1U);
  }
  EXPECT_THAT(Refusal(with("c") + "c").message(),
              HasSubstr("the end of the ZIP archive is missing: the file is cut short"));
}

TEST_F(ZipRecordsTest, A64BitEndIsLookedAtFieldByField) {
  const std::string content = Written({{"one", "first"}});
  const size_t entry = content.find("PK\1\2");
  const size_t end = content.find("PK\5\6");
  const auto bytes = static_cast<uint64_t>(end - entry);
  const std::string record = "PK\6\6" + Raw(uint64_t{44}) + U16(45) + U16(45) + U32(0) + U32(0) +
                             Raw(uint64_t{1}) + Raw(uint64_t{1}) + Raw(bytes) +
                             Raw(static_cast<uint64_t>(entry));
  const std::string locator = "PK\6\7" + U32(0) + Raw(static_cast<uint64_t>(end)) + U32(1);
  const std::string good = content.substr(0, end) + record + locator + "PK\5\6" +
                           std::string(4, '\0') + std::string(12, '\xFF') + U16(0);
  EXPECT_TRUE(Refusal(good).ok()) << Refusal(good).ToString();
  const std::string disks = "a ZIP archive on several disks is not read";
  const size_t located = end + record.size();
  for (const auto& [changed, why] : std::vector<std::pair<std::string, std::string>>{
           {Patched(good, end, uint32_t{7}), "the zip64 end record is damaged"},
           {Patched(good, end + 16, uint32_t{1}), disks},
           {Patched(good, end + 20, uint32_t{1}), disks},
           {Patched(good, end + 24, uint64_t{2}), disks},
           {Patched(good, end + 32, uint64_t{2}), disks},
           {Patched(good, located + 4, uint32_t{1}), disks},
           {Patched(good, located + 8, uint64_t{1} << 40), "points behind the end of the file"},
           {Patched(good, end + 40, uint64_t{1} << 40), "is too large"},
           {Patched(good, end + 48, uint64_t{1} << 40), "points behind the end of the file"}}) {
    EXPECT_THAT(Refusal(changed).message(), HasSubstr(why));
  }
}

}  // namespace
}  // namespace heddle::checkpoint
