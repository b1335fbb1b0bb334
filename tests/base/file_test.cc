#include "base/system/file.h"

#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle {
namespace {

TEST(FileTest, WritesAtomicallyAndReadsBack) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  ASSERT_TRUE(WriteFileAtomically(path, std::string("one\0two", 7)).ok());
  EXPECT_EQ(*ReadFile(path, 100), std::string("one\0two", 7));
  ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  EXPECT_EQ(*ReadFile(path, 0), "");
  EXPECT_FALSE(FileExists(path + ".tmp"));
}

TEST(FileTest, ALinkInTheDraftsPlaceIsNotFollowed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  const std::string victim = folder.path() + "/victim";
  ASSERT_TRUE(WriteFileAtomically(victim, "old").ok());
  std::filesystem::create_symlink(victim, path + ".tmp");
  EXPECT_FALSE(WriteFileAtomically(path, "new").ok());
  EXPECT_EQ(*ReadFile(victim, 100), "old");
}

TEST(FileTest, AFailedWriteLeavesTheOldContentAndNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  ASSERT_TRUE(MakeFolders(path + "/b").ok());
  // A folder in its place: the rename fails after everything was written.
  EXPECT_FALSE(WriteFileAtomically(path, "new").ok());
  EXPECT_TRUE(FileExists(path + "/b"));
  EXPECT_FALSE(FileExists(path + ".tmp"));
}

TEST(FileTest, ReadingNamesWhatIsWrong) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/large", std::string(11, 'x')).ok());
  ASSERT_EQ(::mkfifo((folder.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(folder.path() + "/none", 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(folder.path(), 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(folder.path() + "/fifo", 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(folder.path() + "/large", 10).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(ReadFile(folder.path() + "/large", 11).ok());
}

TEST(FileTest, MakesFoldersAndRefusesAFileInTheWay) {
  const TemporaryFolder folder;
  EXPECT_TRUE(MakeFolders(folder.path() + "/a/b/c").ok());
  EXPECT_TRUE(MakeFolders(folder.path() + "/a/b/c").ok());
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/file", "x").ok());
  EXPECT_FALSE(MakeFolders(folder.path() + "/file").ok());
  EXPECT_FALSE(MakeFolders(folder.path() + "/file/below").ok());
}

TEST(FileTest, TemporaryFoldersVanish) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    ASSERT_TRUE(WriteFileAtomically(path + "/a", "x").ok());
  }
  EXPECT_FALSE(FileExists(path));
}

TEST(FileTest, PathsResolveAgainstTheFolderOfTheirFile) {
  EXPECT_EQ(FolderOf("a/b.yaml"), "a");
  EXPECT_EQ(FolderOf("b.yaml"), ".");
  EXPECT_EQ(FolderOf("/b.yaml"), "/");
  EXPECT_EQ(ResolvePath("a/b", "../c"), "a/b/../c") << "a/b is not there";
  EXPECT_EQ(ResolvePath("a/b", "/c"), "/c");
  EXPECT_EQ(ResolvePath(".", "c"), "c");
  EXPECT_EQ(*AbsolutePath("/../tmp/."), "/tmp");
  EXPECT_EQ(*AbsolutePath("/tmp/.."), "/");
  EXPECT_EQ(*AbsolutePath("c"), std::filesystem::current_path().string() + "/c");
}

// Above a linked folder lies what the file system says, and not what stands before its name.
TEST(FileTest, WhatLiesAboveALinkIsAboveItsTarget) {
  const TemporaryFolder folder;
  const std::string& root = folder.path();
  for (const char* const made : {"/else/dir", "/else/data", "/data"}) {
    ASSERT_TRUE(MakeFolders(root + made).ok());
  }
  ASSERT_TRUE(WriteFileAtomically(root + "/data/p.txt", "beside the link").ok());
  ASSERT_TRUE(WriteFileAtomically(root + "/else/data/p.txt", "beside its target").ok());
  std::filesystem::create_directory_symlink("else/dir", root + "/link");
  const std::string resolved = ResolvePath(root + "/link", "../data/p.txt");
  EXPECT_EQ(*ReadFile(resolved, 100), "beside its target");
  EXPECT_EQ(*ReadFile(*AbsolutePath(resolved), 100), "beside its target");
  EXPECT_EQ(*AbsolutePath(root + "/else/dir/.././data/../data/p.txt"), root + "/else/data/p.txt");
  EXPECT_EQ(*AbsolutePath(root + "/link/../data/../dir"), root + "/link/../dir");
}

TEST(FileTest, NamesThatNoFileSystemTakesLeaveNoFolders) {
  const TemporaryFolder folder;
  for (const std::string& rest : {"/a/" + std::string(256, 'b'), [] {
                                    std::string deep;
                                    while (deep.size() < 4100) {
                                      deep += "/" + std::string(200, 'c');
                                    }
                                    return deep;
                                  }()}) {
    EXPECT_NE(MakeFolders(folder.path() + rest).message().find("File name too long"),
              std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace heddle
