// How long a certificate lives, and that another one in its place is seen.
#include "elastic/identity/own_certificate.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "elastic/identity/authority.h"
#include "tests/elastic/identity/handmade.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class OwnCertificateTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(InitAuthority(lab_, {"a", "b"}, 30).ok());
    own_ = *OwnCertificate::Make(*ReadCredentials(lab_ + "/worker/a"));
  }
  // As an operator does who renews it: a folder in the place of the other.
  void Put(const std::string& party) {
    std::filesystem::remove_all(lab_ + "/worker/a");
    std::filesystem::copy(lab_ + "/" + party, lab_ + "/worker/a",
                          std::filesystem::copy_options::recursive);
    ::chmod((lab_ + "/worker/a/key.pem").c_str(), 0600);
  }

  const TemporaryFolder folder_;
  const std::string lab_ = folder_.path() + "/lab";
  std::unique_ptr<OwnCertificate> own_;
};

TEST_F(OwnCertificateTest, ItsLifeIsWithoutTheMinutesForClocks) {
  const CertificateLife life = own_->life();
  EXPECT_NEAR(life.begins, WallClockSeconds(), 60);
  EXPECT_NEAR(life.ends - life.begins, 30 * 86400, 1);
  EXPECT_NEAR(life.RenewedFrom() - life.begins, 15 * 86400, 1);
  EXPECT_NEAR(life.WarnedFrom() - life.begins, 24 * 86400, 1);
  const KeyAndCertificate root = *MakeAuthority(1);
  const double before = WallClockSeconds();
  const auto brief = LifeOf(MakeByHand(root, {.from = -10, .until = 10}).certificate);
  ASSERT_TRUE(brief.ok());
  const double after = WallClockSeconds();
  EXPECT_GE(brief->begins, before - 2);
  EXPECT_LE(brief->begins, after + 2);
  EXPECT_NEAR(brief->RenewedFrom() - brief->begins, 5, 2);
  EXPECT_EQ(LifeOf("none").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(UtcText(0), "1970-01-01 00:00:00 UTC");
}

TEST_F(OwnCertificateTest, AnotherOneInItsPlaceIsTaken) {
  EXPECT_FALSE(*own_->Look());
  EXPECT_EQ(own_->version(), 1);
  std::filesystem::rename(lab_ + "/worker/a", lab_ + "/old");
  const auto made = IssueInto(lab_, {Role::kWorker, "a"}, 60);
  ASSERT_TRUE(made.ok());
  const auto another = own_->Look();
  ASSERT_TRUE(another.ok()) << another.status().ToString();
  EXPECT_TRUE(*another);
  EXPECT_EQ(own_->version(), 2);
  EXPECT_EQ(own_->current().certificate, ReadCredentials(*made)->certificate);
  EXPECT_NEAR(own_->life().ends - own_->life().begins, 60 * 86400, 1);
  EXPECT_FALSE(*own_->Look());
}

TEST_F(OwnCertificateTest, WhatIsNotThePartysIsNotTaken) {
  const std::string before = own_->current().certificate;
  Put("worker/b");
  EXPECT_THAT(own_->Look().status().message(), HasSubstr("worker/b in the place of one of"));
  Put("viewer");
  EXPECT_FALSE(own_->Look().ok());
  std::filesystem::remove(lab_ + "/worker/a/certificate.pem");
  EXPECT_FALSE(own_->Look().ok());
  const std::string other = folder_.path() + "/other";
  ASSERT_TRUE(InitAuthority(other, {"a"}, 30).ok());
  std::filesystem::remove_all(lab_ + "/worker/a");
  std::filesystem::copy(other + "/worker/a", lab_ + "/worker/a",
                        std::filesystem::copy_options::recursive);
  EXPECT_THAT(own_->Look().status().message(), HasSubstr("another authority"));
  EXPECT_EQ(own_->current().certificate, before);
  EXPECT_EQ(own_->version(), 1);
}

}  // namespace
}  // namespace heddle::elastic
