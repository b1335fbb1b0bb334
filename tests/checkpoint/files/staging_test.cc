/// \file
/// Memory that grows and keeps what is in it, and files that are read by position.
#include "checkpoint/files/staging.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/system/file.h"
#include "checkpoint/files/file_access.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPage = int64_t{2} << 20;  ///< What sizes are rounded up to.

void Fill(StagingBuffer& buffer, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 1000) {
    buffer.data()[at] = static_cast<std::byte>(at / 1000 % 251);
  }
}

void ExpectFilled(const StagingBuffer& buffer, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 1000) {
    ASSERT_EQ(buffer.data()[at], static_cast<std::byte>(at / 1000 % 251)) << at;
  }
}

TEST(StagingBufferTest, ItIsAsLargeAsWasAskedForInWholePages) {
  StagingBuffer buffer;
  EXPECT_EQ(buffer.size(), 0);
  for (const auto& [bytes, size] :
       std::vector<std::pair<int64_t, int64_t>>{{1, kPage},
                                                {kPage, kPage},
                                                {kPage + 1, 2 * kPage},
                                                {5, 2 * kPage},
                                                {5 * kPage, 5 * kPage}}) {
    ASSERT_TRUE(buffer.Reserve(bytes).ok());
    EXPECT_EQ(buffer.size(), size) << bytes;
    Fill(buffer, buffer.size());
    ExpectFilled(buffer, buffer.size());
  }
  const Status none = buffer.Reserve(int64_t{1} << 60);
  EXPECT_EQ(none.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(none.message(), HasSubstr("no memory for a snapshot of 1152921504606846976 bytes"));
}

TEST(StagingBufferTest, ExtendingKeepsWhatIsThereAndGrowsByHalf) {
  StagingBuffer buffer;
  ASSERT_TRUE(buffer.Extend(4 * kPage).ok());
  EXPECT_EQ(buffer.size(), 4 * kPage);
  Fill(buffer, buffer.size());
  ASSERT_TRUE(buffer.Extend(4 * kPage).ok());
  EXPECT_EQ(buffer.size(), 4 * kPage) << "there is room";
  ASSERT_TRUE(buffer.Extend(4 * kPage + 1).ok());
  EXPECT_EQ(buffer.size(), 6 * kPage) << "so that many small steps cost few copies";
  ExpectFilled(buffer, 4 * kPage);
  ASSERT_TRUE(buffer.Extend(20 * kPage - 1).ok());
  EXPECT_EQ(buffer.size(), 20 * kPage) << "as much as is needed";
  ExpectFilled(buffer, 4 * kPage);
  Fill(buffer, buffer.size());
  const Status none = buffer.Extend(int64_t{1} << 60);
  EXPECT_EQ(none.code(), StatusCode::kResourceExhausted);
  ExpectFilled(buffer, 20 * kPage);
}

class FileAccessTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, size_t bytes) const {
    std::string content(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) {
      content[i] = static_cast<char>(i % 251);
    }
    const std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, content).ok());
    return path;
  }

  const TemporaryFolder folder_;
};

TEST_F(FileAccessTest, ARangeIsReadWholeOrItsEndIsNamed) {
  const std::string path = Write("file", 100);
  const auto file = OpenRegularFile(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->name(), path);
  EXPECT_EQ((*file)->bytes(), 100);
  Bytes out(10);
  errno = EINTR;  // An old one says nothing of this read.
  ASSERT_TRUE((*file)->ReadAt(90, out).ok());
  EXPECT_EQ(out[9], std::byte{99});
  const Status behind = (*file)->ReadAt(95, out);
  EXPECT_EQ(behind.code(), StatusCode::kDataLoss);
  EXPECT_EQ(behind.message(), path + ": ends at byte 100, 5 more expected");
  EXPECT_THAT((*file)->ReadAt(-1, out).message(), HasSubstr("read " + path));
}

TEST_F(FileAccessTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const std::string fifo = folder_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, folder_.path()}) {
    const Status status = OpenRegularFile(path).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), path + ": not a regular file");
  }
  const Status none = OpenRegularFile(folder_.path() + "/none").status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("open " + folder_.path() + "/none"));
}

TEST_F(FileAccessTest, AHashIsThatOfItsBlocksAndSaysHowFarItIs) {
  const auto bytes = static_cast<size_t>(kHashBlockBytes) + 7;
  const auto file = OpenRegularFile(Write("large", bytes));
  ASSERT_TRUE(file.ok());
  std::vector<int64_t> read;
  const auto hash = HashFile(**file, [&](int64_t part) { read.push_back(part); });
  ASSERT_TRUE(hash.ok()) << hash.status().ToString();
  EXPECT_THAT(read, ::testing::ElementsAre(kHashBlockBytes, 7));
  Bytes content(bytes);
  ASSERT_TRUE((*file)->ReadAt(0, content).ok());
  const auto block = std::span<const std::byte>(content).first(bytes - 7);
  const auto rest = std::span<const std::byte>(content).last(7);
  EXPECT_EQ(*hash, CombineBlockHashes(std::vector<Hash128Bytes>{Hash128(block), Hash128(rest)}));
  const auto described = DescribeFile(folder_.path(), "large");
  ASSERT_TRUE(described.ok());
  EXPECT_EQ(*described, (FileRecord{"large", static_cast<int64_t>(bytes), *hash}));
  EXPECT_EQ(DescribeFile(folder_.path(), "none").status().code(), StatusCode::kNotFound);
  Write("empty", 0);
  EXPECT_EQ(DescribeFile(folder_.path(), "empty")->hash, CombineBlockHashes({}));
}

}  // namespace
}  // namespace heddle::checkpoint
