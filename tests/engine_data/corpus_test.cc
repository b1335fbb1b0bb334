/// \file
/// Files become one sequence of tokens; compared with the plain concatenation of what was written.
#include "engine/data/corpus.h"

#include <filesystem>
#include <numeric>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"

namespace heddle::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CorpusTest : public testing::Test {
 protected:
  std::string Make(const std::string& name, const std::string& content) {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, content).ok());
    return path;
  }
  template <typename T>
  std::string MakeTokens(const std::string& name, const std::vector<T>& tokens) {
    return Make(
        name, std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)));
  }
  static std::vector<int32_t> ReadAll(const Corpus& corpus) {
    std::vector<int32_t> tokens(static_cast<size_t>(corpus.size()));
    EXPECT_TRUE(corpus.Read(0, tokens).ok());
    return tokens;
  }
  TemporaryFolder folder_;
};

TEST_F(CorpusTest, JoinsTextsByOneNewline) {
  const auto corpus = Corpus::Open(
      Format::kText,
      {{Make("a", "ab")}, {Make("b", "c\n")}, {Make("empty", ""), false}, {Make("d", "\xff")}},
      256);
  ASSERT_TRUE(corpus.ok()) << corpus.status().message();
  EXPECT_THAT(ReadAll(**corpus), ElementsAre('a', 'b', '\n', 'c', '\n', '\n', 0xff));
  EXPECT_EQ((*corpus)->vocabulary_floor(), 256);
}

TEST_F(CorpusTest, ATokenFileOfAnotherKindIsRefusedByName) {
  const std::string array = Make("ids.bin", "\x93NUMPY odd");
  const auto corpus = Corpus::Open(Format::kUint16, {{array}}, 0);
  EXPECT_EQ(
      corpus.status().message(),
      array +
          ": this is a NumPy array; data.tokens takes little-endian token ids and nothing else");
}

TEST_F(CorpusTest, APointerOfGitLfsIsNoData) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, '0') +
      "\nsize 9\n";
  const std::string path = Make("pointer", pointer);
  for (const Format format : {Format::kText, Format::kUint16}) {
    for (const bool named : {true, false}) {
      EXPECT_EQ(
          Corpus::Open(format, {{path, named}}, 1 << 15).status().message(),
          path + ": a pointer of Git LFS, not the data: fetch the file itself (git lfs pull)");
    }
  }
  EXPECT_TRUE(
      Corpus::Open(Format::kText, {{Make("prose", pointer + std::string(1000, 'x'))}}, 256).ok())
      << "a longer text may begin so";
}

TEST_F(CorpusTest, WiderIdsAreRefusedWithTheirWidth) {
  std::vector<uint32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  const std::string four = MakeTokens("four.bin", ids);
  EXPECT_EQ(
      Corpus::Open(Format::kUint16, {{four}}, 0).status().message(),
      four + ": its ids have 4 bytes each, and would be read as 2: set data.token_type to uint32");
  EXPECT_TRUE(Corpus::Open(Format::kUint32, {{four}}, 0).ok());
  const std::string eight = MakeTokens("eight.bin", std::vector<int64_t>(ids.begin(), ids.end()));
  for (const Format format : {Format::kUint16, Format::kUint32}) {
    EXPECT_THAT(Corpus::Open(format, {{eight}}, 0).status().message(),
                HasSubstr("its ids have 8 bytes each"));
  }
}

TEST_F(CorpusTest, EveryRangeEqualsThePartOfTheWhole) {
  const auto corpus = Corpus::Open(
      Format::kText, {{Make("a", "abc")}, {Make("b", "d")}, {Make("c", "efg\n")}}, 256);
  const std::vector<int32_t> whole = ReadAll(**corpus);
  for (size_t first = 0; first <= whole.size(); ++first) {
    for (size_t count = 0; first + count <= whole.size(); ++count) {
      std::vector<int32_t> part(count);
      if (first < whole.size()) {
        ASSERT_TRUE((*corpus)->Read(static_cast<int64_t>(first), part).ok());
      }
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<int64_t>(first)));
    }
  }
}

TEST_F(CorpusTest, ReadsTokenFiles) {
  const auto shorts = Corpus::Open(
      Format::kUint16, {{MakeTokens<uint16_t>("a", {1, 65535})}, {MakeTokens<uint16_t>("b", {2})}},
      65536);
  EXPECT_THAT(ReadAll(**shorts), ElementsAre(1, 65535, 2));
  EXPECT_EQ((*shorts)->vocabulary_floor(), 65536);
  const auto longs =
      Corpus::Open(Format::kUint32, {{MakeTokens<uint32_t>("c", {70000, 3})}}, 100000);
  EXPECT_THAT(ReadAll(**longs), ElementsAre(70000, 3));
  EXPECT_EQ((*longs)->vocabulary_floor(), 70001);
}

TEST_F(CorpusTest, RefusesTokensBeyondTheVocabularyWithFileAndPosition) {
  const std::string path = MakeTokens<uint16_t>("a.bin", {1, 2, 300, 4});
  EXPECT_EQ(Corpus::Open(Format::kUint16, {{path}}, 300).status().message(),
            path + ": token 300 at position 2 is not below the vocabulary of 300");
  const std::string huge = MakeTokens<uint32_t>("b.bin", {0xffffffff});
  EXPECT_THAT(Corpus::Open(Format::kUint32, {{huge}}, 0).status().message(),
              HasSubstr("token 4294967295"));
}

TEST_F(CorpusTest, RefusesWhatIsNoData) {
  const auto message = [](Format format, const std::string& path) {
    return Corpus::Open(format, {{path}}, 256).status().message();
  };
  EXPECT_THAT(message(Format::kUint16, Make("odd", "abc")),
              HasSubstr("3 bytes are no whole number of 2-byte tokens"));
  EXPECT_THAT(message(Format::kText, Make("nul", std::string("ab\0c", 4))),
              HasSubstr("nul: a NUL byte at 2"));
  EXPECT_THAT(message(Format::kText, Make("empty", "")), HasSubstr("empty: empty"));
  EXPECT_THAT(message(Format::kText, folder_.path() + "/none"), HasSubstr("No such file"));
  EXPECT_THAT(message(Format::kText, folder_.path()), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder_.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(message(Format::kText, folder_.path() + "/fifo"), HasSubstr("not a regular file"));
}

TEST_F(CorpusTest, SkipsBinaryFilesThatWereFound) {
  const std::string binary = Make("a.dat", std::string("\0\1", 2));
  const auto corpus = Corpus::Open(Format::kText, {{binary, false}, {Make("b", "b"), false}}, 256);
  EXPECT_THAT(ReadAll(**corpus), ElementsAre('b'));
  EXPECT_THAT((*corpus)->files(), ElementsAre(folder_.path() + "/b"));
  EXPECT_THAT(Corpus::Open(Format::kText, {{binary, false}}, 256).status().message(),
              HasSubstr("no data: every file is binary or empty"));
}

TEST_F(CorpusTest, TheFingerprintFollowsContentNotNames) {
  const auto fingerprint = [](const std::vector<Corpus::Source>& sources) {
    return (*Corpus::Open(Format::kText, sources, 256))->fingerprint();
  };
  const std::string a = Make("a", "abc");
  const std::string same = Make("same", "abc");
  const std::string other = Make("other", "abd");
  EXPECT_EQ(fingerprint({{a}}), fingerprint({{same}}));
  EXPECT_NE(fingerprint({{a}}), fingerprint({{other}}));
  EXPECT_NE(fingerprint({{a}, {other}}), fingerprint({{other}, {a}}));
  EXPECT_NE(fingerprint({{Make("x", "ab")}, {Make("y", "c")}}),
            fingerprint({{Make("z", "a")}, {Make("w", "bc")}}));
  EXPECT_EQ(fingerprint({{Make("binary", std::string("\0", 1)), false}, {a}}), fingerprint({{a}}));
}

TEST_F(CorpusTest, ALargeFileStaysOnDiskAndMayNotShrink) {
  std::string content(static_cast<size_t>(Corpus::kInMemoryBytes) + 5000, 'x');
  content.back() = 'z';
  const std::string path = Make("large", content);
  const auto corpus = Corpus::Open(Format::kText, {{path}, {Make("b", "b")}}, 256);
  ASSERT_TRUE(corpus.ok()) << corpus.status().message();
  std::vector<int32_t> tail(4);
  ASSERT_TRUE((*corpus)->Read((*corpus)->size() - 4, tail).ok());
  EXPECT_THAT(tail, ElementsAre('x', 'z', '\n', 'b'));
  std::filesystem::resize_file(path, 100);
  const Status status = (*corpus)->Read((*corpus)->size() - 4, tail);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("shrank"));
}

}  // namespace
}  // namespace heddle::data
