// A file written through blocks against a plain model of it: content, size and hash.
#include "checkpoint/files/block_file.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "base/system/file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;

Bytes RandomBytes(size_t count, Random& random) {
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.Below(256)); });
  return bytes;
}

Bytes ContentOf(const std::string& path) {
  const auto file = OpenRegularFile(path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  Bytes content(static_cast<size_t>((*file)->bytes()));
  EXPECT_TRUE((*file)->ReadAt(0, content).ok());
  return content;
}

/// The documented hash of a file's content.
std::string HashOf(const Bytes& content) {
  Bytes hashes;
  for (size_t at = 0; at < content.size(); at += size_t{4} << 20) {
    const std::string hex =
        Hash128Hex(std::span(content).subspan(at, std::min(content.size() - at, size_t{4} << 20)));
    for (size_t i = 0; i < hex.size(); i += 2) {
      hashes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
  }
  return Hash128Hex(hashes);
}

/// Past the page cache (true), where the folder's file system lets it, and through it.
class BlockFileTest : public ::testing::TestWithParam<bool> {
 protected:
  std::string path() const { return folder_.path() + "/file"; }

 private:
  const TemporaryFolder folder_;
};

TEST_P(BlockFileTest, RandomWritesReadsAndSizes) {
  Random random(TestSeed());
  for (int round = 0; round < 6; ++round) {
    auto file = BlockFile::Create(path(), GetParam());
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    Bytes model;
    size_t end = 0;
    for (int step = 0; step < 40; ++step) {
      // Mostly one after the other, as chunks are; sometimes anywhere, as metadata is.
      const bool anywhere = random.Below(4) == 0;
      const size_t at = anywhere ? random.Below(model.size() + kHashBlockBytes) : end;
      switch (random.Below(8)) {
        case 0: {
          Bytes out(random.Below(100'000));
          (*file)->Read(static_cast<int64_t>(at), out);
          Bytes expected(out.size());
          for (size_t i = 0; i < out.size() && at + i < model.size(); ++i) {
            expected[i] = model[at + i];
          }
          ASSERT_EQ(out, expected);
          break;
        }
        case 1:
          (*file)->FlushFull();
          break;
        case 2:
          if (random.Below(8) == 0) {
            model.resize(random.Below(model.size() + kHashBlockBytes));
            (*file)->Resize(static_cast<int64_t>(model.size()));
            end = model.size();
          }
          break;
        default: {
          const Bytes bytes =
              RandomBytes(random.Below(anywhere ? 5'000 : size_t{2} << 20) + 1, random);
          (*file)->Write(static_cast<int64_t>(at), bytes);
          model.resize(std::max(model.size(), at + bytes.size()));
          std::ranges::copy(bytes, model.begin() + static_cast<ptrdiff_t>(at));
          end = anywhere ? end : at + bytes.size();
        }
      }
      ASSERT_EQ((*file)->bytes(), static_cast<int64_t>(model.size()));
    }
    const auto record = (*file)->Finish();
    ASSERT_TRUE(record.ok()) << record.status().ToString();
    ASSERT_TRUE((*file)->Sync().ok());
    EXPECT_EQ(record->name, "file");
    EXPECT_EQ(record->bytes, static_cast<int64_t>(model.size()));
    EXPECT_EQ(record->hash, HashOf(model));
    ASSERT_TRUE(ContentOf(path()) == model) << round;
    EXPECT_EQ(*HashFile(**OpenRegularFile(path())), record->hash);
  }
}

TEST_P(BlockFileTest, WhatIsCutOffComesBackAsZeros) {
  Random random(TestSeed());
  for (const int64_t cut : {int64_t{1000}, kHashBlockBytes, kHashBlockBytes + 12'345}) {
    for (const bool flushed : {false, true}) {
      auto file = BlockFile::Create(path(), GetParam());
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      Bytes model = RandomBytes(static_cast<size_t>(2 * kHashBlockBytes), random);
      (*file)->Write(0, model);
      if (flushed) {
        (*file)->FlushFull();
      }
      (*file)->Resize(cut);
      (*file)->Resize(static_cast<int64_t>(model.size()) - 7);
      model.resize(model.size() - 7);
      std::fill(model.begin() + cut, model.end(), std::byte{0});
      const auto record = (*file)->Finish();
      ASSERT_TRUE(record.ok()) << record.status().ToString();
      EXPECT_EQ(record->bytes, static_cast<int64_t>(model.size()));
      EXPECT_EQ(record->hash, HashOf(model)) << "cut at " << cut << " flushed " << flushed;
      EXPECT_TRUE(ContentOf(path()) == model) << "cut at " << cut << " flushed " << flushed;
    }
  }
}

TEST_P(BlockFileTest, AFailureIsKeptAndTheRestSwallowed) {
  auto file = BlockFile::Create(path(), GetParam());
  ASSERT_TRUE(file.ok());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = size_t{5} << 20;
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Bytes bytes(size_t{4} << 20, std::byte{7});
  for (int64_t at = 0; at < 4; ++at) {
    (*file)->Write(at * kHashBlockBytes, bytes);
    (*file)->FlushFull();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ((*file)->status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT((*file)->status().message(), ::testing::HasSubstr(path()));
  EXPECT_EQ((*file)->Finish().status().message(), (*file)->status().message());
  Bytes out(10, std::byte{1});
  (*file)->Read(0, out);
  EXPECT_EQ(out, Bytes(10));
}

/// Blocks of one value each, and which of them the file itself has.
class BlockPlacesTest : public BlockFileTest {
 protected:
  void Fill(BlockFile& file, int64_t block, uint8_t value, int64_t bytes = kHashBlockBytes) const {
    file.Write(block * kHashBlockBytes, Bytes(static_cast<size_t>(bytes), std::byte{value}));
  }
  /// By block: its first byte on storage, 0 where there is none yet.
  std::vector<int> Stored(int64_t blocks) const {
    const Bytes content = ContentOf(path());
    std::vector<int> stored;
    for (int64_t block = 0; block < blocks; ++block) {
      const auto at = static_cast<size_t>(block * kHashBlockBytes);
      stored.push_back(at < content.size() ? std::to_integer<int>(content[at]) : 0);
    }
    return stored;
  }
};

TEST_P(BlockPlacesTest, WhatLeavesMemoryIsTheBlockThatWasUsedLongestAgoAndNeverTheFirst) {
  auto file = BlockFile::Create(path(), GetParam());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  for (int64_t block = 0; block < 4; ++block) {
    Fill(**file, block, static_cast<uint8_t>(block + 1), 10);
  }
  EXPECT_THAT(Stored(6), ElementsAre(0, 0, 0, 0, 0, 0)) << "four have room";
  Bytes out(1);
  (*file)->Read(kHashBlockBytes, out);  // Block 1 is used.
  Fill(**file, 4, 5, 10);
  EXPECT_THAT(Stored(6), ElementsAre(0, 0, 3, 0, 0, 0));
  Fill(**file, 5, 6, 10);
  EXPECT_THAT(Stored(6), ElementsAre(0, 0, 3, 4, 0, 0));
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_THAT(Stored(6), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_P(BlockPlacesTest, OnlyBlocksThatAreFullGoAhead) {
  auto file = BlockFile::Create(path(), GetParam());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  Fill(**file, 0, 1, kHashBlockBytes - 1);
  (*file)->FlushFull();
  EXPECT_THAT(Stored(1), ElementsAre(0));
  (*file)->Write(kHashBlockBytes - 1, Bytes(1, std::byte{9}));
  (*file)->FlushFull();
  EXPECT_THAT(Stored(1), ElementsAre(1));
  // A full one that changes is not full again.
  (*file)->Write(0, Bytes(1, std::byte{2}));
  (*file)->FlushFull();
  EXPECT_THAT(Stored(1), ElementsAre(1));
  // Nor is one that comes back into memory. What was in its place does not count.
  for (int64_t block = 1; block < 6; ++block) {
    Fill(**file, block, static_cast<uint8_t>(block));
  }
  (*file)->Write(kHashBlockBytes, Bytes(1, std::byte{8}));
  (*file)->FlushFull();
  EXPECT_THAT(Stored(6), ElementsAre(1, 1, 2, 3, 4, 5));
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_THAT(Stored(6), ElementsAre(2, 8, 2, 3, 4, 5));
}

TEST_P(BlockPlacesTest, WhatDidNotChangeIsNotWrittenAgain) {
  auto file = BlockFile::Create(path(), GetParam());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  Fill(**file, 0, 1);
  (*file)->FlushFull();
  std::fstream other(path(), std::ios::in | std::ios::out | std::ios::binary);
  other.put('\7');
  other.close();
  (*file)->FlushFull();
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_THAT(Stored(1), ElementsAre(7));
}

TEST_P(BlockPlacesTest, WhatABlockLacksOnStorageIsZerosWhenItComesBack) {
  auto file = BlockFile::Create(path(), GetParam());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  for (int64_t block = 0; block < 5; ++block) {
    Fill(**file, block, static_cast<uint8_t>(block + 1));
  }
  Fill(**file, 5, 6, 10);
  Bytes out(1);
  for (int64_t block = 1; block < 5; ++block) {  // Which puts the last one out of memory.
    (*file)->Read(block * kHashBlockBytes, out);
  }
  EXPECT_THAT(Stored(6), ElementsAre(0, 2, 3, 4, 5, 6));
  out.resize(40);
  (*file)->Read(5 * kHashBlockBytes, out);
  Bytes expected(40);
  std::fill_n(expected.begin(), 10, std::byte{6});
  EXPECT_EQ(out, expected);
  (*file)->Write(5 * kHashBlockBytes + 20, Bytes(1, std::byte{7}));
  ASSERT_TRUE((*file)->Finish().ok());
  expected.resize(21);
  expected[20] = std::byte{7};
  const Bytes content = ContentOf(path());
  ASSERT_EQ(content.size(), static_cast<size_t>(5 * kHashBlockBytes) + 21);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), content.end() - 21));
}

TEST(BlockFileNamesTest, AFolderThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/none/file";
  for (const bool direct : {false, true}) {
    const Status status = BlockFile::Create(path, direct).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("create " + path));
  }
}

INSTANTIATE_TEST_SUITE_P(Direct, BlockPlacesTest, ::testing::Bool());
INSTANTIATE_TEST_SUITE_P(Direct, BlockFileTest, ::testing::Bool());

}  // namespace
}  // namespace heddle::checkpoint
