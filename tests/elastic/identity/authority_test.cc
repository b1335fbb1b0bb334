// Folders of keys and certificates: what is in them, who may read them, and that none is
// overwritten.
#include "elastic/identity/authority.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/system/file.h"
#include "elastic/identity/credentials.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class AuthorityTest : public testing::Test {
 protected:
  void SetUp() override {
    const Status made = InitAuthority(lab_, {"a", "b"}, 30);
    ASSERT_TRUE(made.ok()) << made.ToString();
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
  }
  std::string ReadAll() const {
    std::string all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(lab_)) {
      all += entry.path().string() + "\n";
      if (entry.is_regular_file()) {
        all += *ReadFile(entry.path().string(), 1 << 20);
      }
    }
    return all;
  }

  const TemporaryFolder folder_;
  const std::string lab_ = folder_.path() + "/lab";
};

TEST_F(AuthorityTest, EachPartyHasWhatItNeeds) {
  for (const char* party : {"coordinator", "operator", "viewer", "worker/a", "worker/b"}) {
    const auto read = ReadCredentials(lab_ + "/" + party);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(IdentityText(read->identity), party);
    EXPECT_EQ(ModeOf(lab_ + "/" + party), 0700U);
    EXPECT_EQ(ModeOf(lab_ + "/" + party + "/key.pem"), 0600U);
  }
  EXPECT_EQ(ModeOf(lab_ + "/authority/key.pem"), 0600U);
  EXPECT_EQ(ModeOf(lab_), 0700U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
      << "no draft is left";
}

TEST_F(AuthorityTest, NothingIsOverwritten) {
  const std::string before = ReadAll();
  EXPECT_EQ(InitAuthority(lab_, {"c"}, 30).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(IssueInto(lab_, {Role::kWorker, "a"}, 30).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(IssueInto(lab_, {Role::kOperator, ""}, 30).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadAll(), before);
}

TEST_F(AuthorityTest, TheLongestNameThereIsHasACertificate) {
  const std::string name(64, 'n');
  const auto made = IssueInto(lab_, {Role::kWorker, name}, 30);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(ReadCredentials(*made)->identity.name, name);
}

TEST_F(AuthorityTest, AnEmptyFolderIsFilled) {
  const std::string empty = folder_.path() + "/empty";
  ASSERT_TRUE(MakeFolders(empty).ok());
  EXPECT_TRUE(InitAuthority(empty + "/", {}, 30).ok());
  EXPECT_TRUE(ReadCredentials(empty + "/viewer").ok());
}

TEST_F(AuthorityTest, PartiesAreAdded) {
  const auto made = IssueInto(lab_, {Role::kWorker, "c"}, 30);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(*made, lab_ + "/worker/c");
  const auto read = ReadCredentials(*made);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->identity.name, "c");
  EXPECT_EQ(IssueInto(folder_.path() + "/none", {Role::kViewer, ""}, 30).status().code(),
            StatusCode::kNotFound);
}

TEST_F(AuthorityTest, WhatCannotBeIsSaid) {
  const std::string other = folder_.path() + "/other";
  EXPECT_EQ(InitAuthority(other, {"a", "a"}, 30).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(InitAuthority(other, {"../a"}, 30).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(InitAuthority(other, {}, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(InitAuthority(other, {}, kMaxDays + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(other));
}

TEST_F(AuthorityTest, AKeyThatOthersMayReadIsRefused) {
  const std::string key = lab_ + "/operator/key.pem";
  ASSERT_EQ(::chmod(key.c_str(), 0640), 0);
  const auto read = ReadCredentials(lab_ + "/operator");
  EXPECT_EQ(read.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(read.status().message(), HasSubstr("chmod 600 " + key));
}

TEST_F(AuthorityTest, PartsOfDifferentPartiesAreRefused) {
  const auto copy = [&](const char* from, const std::string& to) {
    std::filesystem::copy_file(lab_ + "/" + from, lab_ + "/" + to,
                               std::filesystem::copy_options::overwrite_existing);
  };
  copy("viewer/key.pem", "operator/key.pem");
  EXPECT_THAT(ReadCredentials(lab_ + "/operator").status().message(),
              HasSubstr("is not the key of certificate.pem"));
  copy("viewer/certificate.pem", "viewer/authority.pem");
  EXPECT_THAT(ReadCredentials(lab_ + "/viewer").status().message(),
              HasSubstr("not one of this lab's authority"));
  std::filesystem::resize_file(lab_ + "/worker/a/certificate.pem", 100);
  EXPECT_THAT(ReadCredentials(lab_ + "/worker/a").status().message(),
              HasSubstr("/worker/a/certificate.pem: not a certificate in PEM"));
}

TEST_F(AuthorityTest, AWorkerFindsItsFolderAmongOthers) {
  EXPECT_EQ(WorkerFolder(lab_ + "/worker", "a"), lab_ + "/worker/a");
  EXPECT_EQ(WorkerFolder(lab_ + "/worker/a", "a"), lab_ + "/worker/a");
  EXPECT_EQ(WorkerFolder(lab_ + "/worker/a", ""), lab_ + "/worker/a");
  EXPECT_EQ(WorkerFolder("", "a"), "");
  EXPECT_TRUE(ReadCredentials("")->empty());
}

}  // namespace
}  // namespace heddle::elastic
