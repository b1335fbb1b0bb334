/// \file
/// Goal: what a conversion may replace, each refusal by its sentence; and what makes two sources
/// the same.
#include "checkpoint/convert/target.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "checkpoint/convert/convert.h"
#include "checkpoint/convert/identity.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

class TargetTest : public ::testing::Test {
 protected:
  TargetTest() { std::filesystem::create_directories(source_); }

  std::string Check(const std::string& target, bool overwrite = true) const {
    return std::string(CheckTarget(source_, target, overwrite).message());
  }
  /// A folder with one empty file.
  std::string FolderWith(const std::string& name) const {
    const std::string folder = folder_.path() + "/target";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/" + name).close();
    return folder;
  }

  const TemporaryFolder folder_;
  const std::string source_ = folder_.path() + "/source";
};

TEST_F(TargetTest, AFolderOfModelFilesIsReplacedAndNoOther) {
  for (const char* const name :
       {"config.json", "MANIFEST.json", "w0.g1.h5", "model.safetensors",
        "model-00001-of-00002.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
        "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"}) {
    const std::string folder = FolderWith(name);
    EXPECT_EQ(Check(folder), "") << name;
    EXPECT_EQ(Check(folder, false), folder + " exists; --overwrite replaces it");
    std::filesystem::remove(folder + "/" + name);
    std::filesystem::create_directory(folder + "/" + name);
    EXPECT_THAT(Check(folder), HasSubstr("which would be lost")) << name << ", a folder";
  }
  for (const char* const name : {"thesis.txt", "config.yaml", "other.bin", "other.bin.index.json",
                                 "pytorch_model.txt", "h5", "MANIFEST.json.old"}) {
    const std::string folder = FolderWith(name);
    const Status status = CheckTarget(source_, folder, true);
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << name;
    EXPECT_EQ(status.message(),
              folder + " holds '" + name + "', which would be lost: it is not replaced");
  }
}

TEST_F(TargetTest, AFileIsReplacedWhenItIsAModel) {
  const std::string path = folder_.path() + "/file";
  ASSERT_TRUE(WriteFileAtomically(path, "a letter").ok());
  EXPECT_EQ(Check(path), path + " exists and is no model: it is not replaced");
  EXPECT_EQ(Check(path, false), path + " exists; --overwrite replaces it");
  ASSERT_TRUE(WriteFileAtomically(path, std::string("\2\0\0\0\0\0\0\0{}", 10)).ok());
  EXPECT_EQ(Check(path), "");
  const std::string link = folder_.path() + "/link";
  std::filesystem::create_symlink(path, link);
  EXPECT_EQ(Check(link), link + " exists and is no model: it is not replaced");
  const std::string fifo = folder_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(Check(fifo), fifo + " exists and is no model: it is not replaced");
  EXPECT_EQ(Check(folder_.path() + "/none"), "");
}

TEST_F(TargetTest, SourceAndTargetDoNotLieOneInTheOther) {
  for (const std::string& target : {source_ + "/inner", source_ + "/a/b", folder_.path()}) {
    const Status status = CheckTarget(source_, target, true);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              source_ + " and " + target + " lie one in the other: choose another place");
  }
  EXPECT_EQ(Check(source_ + "2"), "") << "a name that begins alike";
  EXPECT_EQ(Check(source_), "") << "it replaces itself";
  EXPECT_EQ(Check("s3://bucket/a"), "s3://bucket/a: models are written to paths, not to URLs");
}

TEST_F(TargetTest, AnElementTypeThatIsNotKnownIsNamed) {
  const std::string header = R"({"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})";
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  const std::string path = folder_.path() + "/odd";
  ASSERT_TRUE(WriteFileAtomically(path, file + header + "xx").ok());
  const auto converted =
      Convert(path, folder_.path() + "/out", {.to = "native", .dtype = {}, .progress = {}});
  EXPECT_EQ(converted.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(converted.status().message(),
            path + ": tensor 'w': elements of type F8_E4M3 are not supported");
}

TEST_F(TargetTest, AnotherFileAnotherSizeOrAnotherNameIsAnotherSource) {
  // A folder lists them in no order: neither as they came nor the other way round.
  ASSERT_TRUE(WriteFileAtomically(source_ + "/a", "a").ok());
  ASSERT_TRUE(WriteFileAtomically(source_ + "/c", "ccc").ok());
  ASSERT_TRUE(WriteFileAtomically(source_ + "/b", "bb").ok());
  const auto fingerprint = FileFingerprint(source_);
  ASSERT_TRUE(fingerprint.ok()) << fingerprint.status().ToString();
  EXPECT_EQ(*FileFingerprint(source_), *fingerprint);
  EXPECT_LT(fingerprint->find(source_ + "/a 1 "), fingerprint->find(source_ + "/b 2 "))
      << "by name";
  EXPECT_LT(fingerprint->find(source_ + "/b 2 "), fingerprint->find(source_ + "/c 3 "))
      << "by name";
  EXPECT_THAT(*FileFingerprint(source_ + "/b"), HasSubstr(source_ + "/b 2 "));
  ASSERT_TRUE(WriteFileAtomically(source_ + "/a", "c").ok());
  EXPECT_NE(*FileFingerprint(source_), *fingerprint) << "as long, and written anew";
  const Status none = FileFingerprint(folder_.path() + "/none").status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("stat " + folder_.path() + "/none"));
}

}  // namespace
}  // namespace heddle::checkpoint
