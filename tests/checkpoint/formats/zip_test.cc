/// \file
/// Goal: what is written is found again, aligned and whole; what is damaged or strange is refused.
#include "checkpoint/formats/pytorch/zip.h"

#include <gmock/gmock.h>

#include "base/system/file.h"
#include "checkpoint/files/file_access.h"
#include "tests/checkpoint/formats/pytorch_support.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;
using Entries = std::vector<std::pair<std::string, std::string>>;

class ZipTest : public ::testing::Test {
 protected:
  Result<std::map<std::string, ZipEntry>> Read() const {
    HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenRegularFile(path_));
    return ReadZipDirectory(*file);
  }
  Result<std::map<std::string, ZipEntry>> Read(const std::string& content) const {
    Spill(path_, content);
    return Read();
  }
  /// An archive of two entries, as text.
  std::string Sample() const {
    EXPECT_TRUE(WriteArchive(path_, {{"one", "first"}, {"two", "second entry"}}).ok());
    return Slurp(path_);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/a.zip";
};

template <typename T>
std::string Patched(std::string content, size_t at, T value) {
  return content.replace(at, sizeof(T), opcodes::Raw(value));
}

TEST_F(ZipTest, EntriesComeBackAligned) {
  Random random(TestSeed());
  Entries entries;
  for (int i = 0; i < 50; ++i) {
    std::string data(random.Below(i % 5 == 0 ? 3 : 3000), '\0');
    for (char& c : data) {
      c = static_cast<char>(random.Below(256));
    }
    entries.emplace_back(fmt::format("{}{}", i, std::string(random.Below(90), 'n')), data);
  }
  ASSERT_TRUE(WriteArchive(path_, entries).ok());
  const auto found = Read();
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), entries.size());
  const std::string content = Slurp(path_);
  for (const auto& [name, data] : entries) {
    const ZipEntry entry = found->at("archive/" + name);
    EXPECT_EQ(entry.offset % 64, 0);
    EXPECT_EQ(content.substr(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes)),
              data);
  }
}

TEST_F(ZipTest, ManyEntriesNeedZip64) {
  Entries entries;
  for (int i = 0; i < 66'000; ++i) {
    entries.emplace_back(fmt::format("{}", i), "");
  }
  ASSERT_TRUE(WriteArchive(path_, entries).ok());
  const auto found = Read();
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->size(), entries.size());
}

TEST_F(ZipTest, NumbersOf64BitsAreRead) {
  std::string content = Sample();
  const size_t entry = content.find("PK\1\2");
  // The first entry's sizes move to a zip64 field; the directory grows by it.
  const std::string field = opcodes::Raw(uint16_t{1}) + opcodes::Raw(uint16_t{16}) +
                            opcodes::Raw(uint64_t{5}) + opcodes::Raw(uint64_t{5});
  content = Patched(content, entry + 20, UINT32_MAX);
  content = Patched(content, entry + 24, UINT32_MAX);
  content = Patched(content, entry + 30, static_cast<uint16_t>(field.size()));
  content.insert(entry + 46 + std::string("archive/one").size(), field);
  const size_t end = content.find("PK\5\6");
  content = Patched(content, end + 12, static_cast<uint32_t>(end - entry));
  const auto found = Read(content);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->at("archive/one").bytes, 5);
}

TEST_F(ZipTest, ACommentIsNoHarm) {
  std::string content = Sample();
  content = Patched(content, content.size() - 2, uint16_t{7}) + "PK\5\6abc";
  EXPECT_TRUE(Read(content).ok());
}

TEST_F(ZipTest, StrangeArchivesAreRefused) {
  const std::string content = Sample();
  const size_t entry = content.find("PK\1\2");
  const size_t second = content.find("PK\1\2", entry + 1);
  const size_t end = content.find("PK\5\6");
  const auto refused = [&](const std::string& damaged, const std::string& why) {
    const auto found = Read(damaged);
    ASSERT_FALSE(found.ok()) << why;
    EXPECT_THAT(found.status().message(), HasSubstr(why));
    EXPECT_THAT(found.status().message(), HasSubstr(path_));
  };
  refused(Patched(content, entry + 10, uint16_t{8}), "compressed");
  refused(Patched(content, entry + 8, uint16_t{1}), "encrypted");
  refused(Patched(content, entry + 34, uint16_t{2}), "another disk");
  refused(Patched(content, end + 4, uint16_t{1}), "several disks");
  refused(Patched(content, entry + 24, uint32_t{6}), "stored, but in 5 bytes for 6");
  refused(Patched(Patched(content, entry + 20, UINT32_MAX - 1), entry + 24, UINT32_MAX - 1),
          "reaches into");
  refused(Patched(Patched(content, entry + 20, uint32_t{60}), entry + 24, uint32_t{60}),
          "overlaps");
  refused(Patched(content, second + 42, uint32_t{0}), "overlaps");
  refused(Patched(content, second + 42, uint32_t{1} << 30), "behind the end");
  refused(Patched(content, second + 42, uint32_t{70}), "not where");
  refused(Patched(content, end + 16, uint32_t{1} << 30), "behind the end");
  refused(Patched(Patched(content, end + 8, uint16_t{3}), end + 10, uint16_t{3}), "truncated");
  refused(Patched(content, end + 12, UINT32_MAX - 1), "too large");
  std::string twice = content;
  twice.replace(second + 46, 11, "archive/one");
  refused(twice, "two entries");
}

TEST_F(ZipTest, TruncatedAtEveryByte) {
  const std::string content = Sample();
  for (size_t size = 0; size < content.size(); ++size) {
    EXPECT_FALSE(Read(content.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace heddle::checkpoint
