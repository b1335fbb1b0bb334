#include "engine/data/file_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"

namespace heddle::data {
namespace {

using testing::ElementsAre;

class FileListTest : public testing::Test {
 protected:
  std::string Make(const std::string& name) {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(MakeFolders(FolderOf(path)).ok());
    EXPECT_TRUE(WriteFileAtomically(path, "x").ok());
    return path;
  }
  /// Names relative to the folder.
  std::vector<std::string> List(const std::vector<std::string>& include) {
    const auto files = ListFiles(folder_.path(), include);
    EXPECT_TRUE(files.ok()) << files.status().message();
    std::vector<std::string> names;
    for (const std::string& file : *files) {
      names.push_back(file.substr(folder_.path().size() + 1));
    }
    return names;
  }
  TemporaryFolder folder_;
};

TEST_F(FileListTest, SortsAndLeavesOutLinksHiddenAndSpecialFiles) {
  Make("b.txt");
  Make("a.txt");
  Make("B.txt");
  Make("sub/c.txt");
  Make(".hidden");
  Make(".git/config");
  ASSERT_EQ(::symlink("a.txt", (folder_.path() + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("sub", (folder_.path() + "/folder-link").c_str()), 0);
  ASSERT_EQ(::symlink(".", (folder_.path() + "/sub/loop").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(List({}), ElementsAre("B.txt", "a.txt", "b.txt", "sub/c.txt"));
}

TEST_F(FileListTest, IncludesByGlob) {
  Make("a.txt");
  Make("a.md");
  Make("sub/b.txt");
  Make("sub/deep/c.txt");
  EXPECT_THAT(List({"*.txt"}), ElementsAre("a.txt"));
  EXPECT_THAT(List({"**/*.txt"}), ElementsAre("a.txt", "sub/b.txt", "sub/deep/c.txt"));
  EXPECT_THAT(List({"sub/*.txt", "a.md"}), ElementsAre("a.md", "sub/b.txt"));
  EXPECT_THAT(List({"[ab].??"}), ElementsAre("a.md"));
}

TEST_F(FileListTest, SaysWhatMatchesNothing) {
  Make("a.md");
  EXPECT_EQ(ListFiles(folder_.path(), {"*.txt", "*.rst"}).status().message(),
            folder_.path() + ": no file matches '*.txt', '*.rst'");
  EXPECT_EQ(ListFiles(folder_.path() + "/none", {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace heddle::data
