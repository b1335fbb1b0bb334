/// \file
/// Output beside its place: what a later process of the same attempt keeps, and when it begins
/// anew.
#include "checkpoint/formats/staged_output.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "base/system/file.h"
#include "checkpoint/files/file_access.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

class StagedOutputTest : public ::testing::Test {
 protected:
  const Attempt attempt_{.identity = "this attempt", .files = {"a", "b"}};

  /// What a killed process leaves that had finished `files` of its files.
  void Leave(size_t files) const {
    std::filesystem::create_directories(holder_ + "/output");
    for (size_t i = 0; i < files; ++i) {
      const std::string& name = attempt_.files[i];
      ASSERT_TRUE(WriteFileAtomically(holder_ + "/output/" + name, "content of " + name).ok());
      const auto facts = DescribeFile(holder_ + "/output", name);
      ASSERT_TRUE(facts.ok()) << facts.status().ToString();
      SetRecord(i, fmt::format(R"({{"identity": "this attempt", "name": "{}", "bytes": {},
                                   "blocks_xxh3_128": "{}", "detail": "of {}"}})",
                               name, facts->bytes, facts->hash, name));
    }
  }
  void SetRecord(size_t number, const std::string& text) const {
    ASSERT_TRUE(
        WriteFileAtomically(fmt::format("{}/finished-{}.json", holder_, number), text).ok());
  }
  std::string Record(size_t number) const {
    return *ReadFile(fmt::format("{}/finished-{}.json", holder_, number), 1 << 20);
  }
  /// How many files the next process need not write again.
  size_t Kept() const {
    const auto staged = StagedOutput::Folder(path_, attempt_);
    EXPECT_TRUE(staged.ok()) << staged.status().ToString();
    EXPECT_THAT(staged->history(),
                HasSubstr(staged->finished().empty() ? "it begins anew" : "goes on with"));
    return staged->finished().size();
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/model";
  const std::string holder_ = folder_.path() + "/.model.tmp";
};

TEST_F(StagedOutputTest, TheSameAttemptGoesOn) {
  Leave(2);
  const auto staged = StagedOutput::Folder(path_, attempt_);
  ASSERT_TRUE(staged.ok()) << staged.status().ToString();
  ASSERT_EQ(staged->finished().size(), 2U);
  EXPECT_EQ(staged->finished()[1].file.name, "b");
  EXPECT_EQ(staged->finished()[1].detail, "of b");
  EXPECT_THAT(staged->history(),
              HasSubstr("goes on with an earlier attempt at " + path_ + ": 2 files were finished"));
}

TEST_F(StagedOutputTest, ARecordThatIsNoneEndsWhatIsKept) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {R"("identity": "this attempt",)", ""},
      {R"("identity": "this attempt")", R"("identity": 7)"},
      {R"("identity": "this attempt")", R"("identity": "another")"},
      {R"("name": "b",)", ""},
      {R"("name": "b")", R"("name": null)"},
      {R"("name": "b")", R"("name": "a")"},
      {R"("bytes": 12,)", ""},
      {R"("bytes": 12)", R"("bytes": "12")"},
      {R"("bytes": 12)", R"("bytes": 11)"},
      {R"("blocks_xxh3_128")", R"("hash")"},
      {R"("blocks_xxh3_128": ")", R"("blocks_xxh3_128": "0)"},
      {R"(, "detail": "of b")", ""},
      {R"("detail": "of b")", R"("detail": {})"},
      {"{", "["},
      {"}", ""}};
  for (const auto& [from, to] : changes) {
    Leave(2);
    std::string record = Record(1);
    record.erase(std::remove(record.begin(), record.end(), '\n'), record.end());
    const size_t place = record.find(from == R"(, "detail": "of b")" ? R"("detail")" : from);
    ASSERT_NE(place, std::string::npos) << from;
    if (from.starts_with(", ")) {
      record = record.substr(0, record.rfind(',', place)) + "}";
    } else {
      record.replace(place, from.size(), to);
    }
    SetRecord(1, record);
    EXPECT_EQ(Kept(), 1U) << from << " -> " << to;
  }
  for (const char* const text : {"[]", "3", "{}", "", R"("text")"}) {
    Leave(2);
    SetRecord(0, text);
    EXPECT_EQ(Kept(), 0U) << text;
  }
}

TEST_F(StagedOutputTest, AFileThatIsDamagedOrMissingEndsWhatIsKept) {
  Leave(2);
  ASSERT_TRUE(WriteFileAtomically(holder_ + "/output/b", "content of B").ok());
  EXPECT_EQ(Kept(), 1U);
  Leave(2);
  std::filesystem::remove(holder_ + "/output/a");
  EXPECT_EQ(Kept(), 0U) << "what follows is not looked at";
}

TEST_F(StagedOutputTest, WithoutAnIdentityNothingIsKept) {
  Leave(2);
  ASSERT_TRUE(WriteFileAtomically(holder_ + "/other", "x").ok());
  const auto staged = StagedOutput::Folder(path_, {.identity = "", .files = {"a", "b"}});
  ASSERT_TRUE(staged.ok());
  EXPECT_TRUE(staged->finished().empty());
  EXPECT_FALSE(FileExists(holder_ + "/output/a"));
  EXPECT_FALSE(FileExists(holder_ + "/finished-0.json"));
  EXPECT_FALSE(FileExists(holder_ + "/other"));
  EXPECT_TRUE(FileExists(holder_ + "/output"));
}

TEST_F(StagedOutputTest, WhatIsNotKeptGoes) {
  Leave(2);
  auto staged = StagedOutput::Folder(path_, attempt_);
  ASSERT_TRUE(staged.ok());
  ASSERT_TRUE(staged->Keep(1).ok());
  EXPECT_EQ(staged->finished().size(), 1U);
  EXPECT_TRUE(FileExists(holder_ + "/output/a"));
  EXPECT_FALSE(FileExists(holder_ + "/output/b"));
  EXPECT_FALSE(FileExists(holder_ + "/finished-1.json"));
}

TEST_F(StagedOutputTest, ARecordIsReadByTheNextProcess) {
  {
    auto staged = StagedOutput::Folder(path_, attempt_);
    ASSERT_TRUE(staged.ok());
    EXPECT_EQ(staged->history(), "");
    ASSERT_TRUE(WriteFileAtomically(staged->temporary() + "/a", "text").ok());
    const auto facts = DescribeFile(staged->temporary(), "a");
    ASSERT_TRUE(staged->Record(*facts, "mine").ok());
    std::filesystem::copy(holder_, folder_.path() + "/copy",
                          std::filesystem::copy_options::recursive);
  }
  EXPECT_FALSE(FileExists(holder_)) << "what was not committed goes";
  std::filesystem::rename(folder_.path() + "/copy", holder_);
  const auto staged = StagedOutput::Folder(path_, attempt_);
  ASSERT_TRUE(staged.ok());
  ASSERT_EQ(staged->finished().size(), 1U);
  EXPECT_EQ(staged->finished()[0].detail, "mine");
}

TEST_F(StagedOutputTest, OnlyOneWritesAndItAppearsAtOnce) {
  auto staged = StagedOutput::File(path_);
  ASSERT_TRUE(staged.ok());
  EXPECT_EQ(StagedOutput::File(path_).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(StagedOutput::Folder(path_ + "//", attempt_).status().message(),
            path_ + " is being written by another process");
  auto file = OutputFile::Create(staged->temporary());
  ASSERT_TRUE(file.ok());
  const std::string text = "0123456789";
  ASSERT_TRUE(file->Append(std::as_bytes(std::span(text))).ok());
  EXPECT_EQ(file->bytes(), 10);
  ASSERT_TRUE(file->WriteAt(3, std::as_bytes(std::span("ab", 2))).ok());
  ASSERT_TRUE(file->Append(std::as_bytes(std::span("c", 1))).ok());
  EXPECT_EQ(file->bytes(), 11);
  ASSERT_TRUE(file->Close().ok());
  ASSERT_TRUE(WriteFileAtomically(path_, "old").ok());
  EXPECT_EQ(staged->Commit(false).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadFile(path_, 99), "old");
  ASSERT_TRUE(staged->Commit(true).ok());
  EXPECT_EQ(*ReadFile(path_, 99), "012ab56789c");
}

TEST_F(StagedOutputTest, APathWithoutANameIsRefused) {
  for (const char* const path : {"/", "", "a/..", "."}) {
    EXPECT_EQ(StagedOutput::File(path).status().code(), StatusCode::kInvalidArgument) << path;
  }
  for (const auto& [path, named] : {std::pair("/", "/"), {"///", "/"}, {"a/../", "a/.."}}) {
    EXPECT_EQ(StagedOutput::File(path).status().message(),
              fmt::format("'{}' names no file or folder to write", named));
  }
}

}  // namespace
}  // namespace heddle::checkpoint
