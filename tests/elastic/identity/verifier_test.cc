// Which certificates are taken, and why the others are not. Those that our own authority would not
// make are made here by hand.
#include "elastic/identity/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/identity/handmade.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class VerifierTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = *MakeAuthority(10);
    verifier_ = *PeerVerifier::Make(root_.certificate);
  }
  PeerVerdict Verify(const std::string& pem) const { return verifier_->Verify(pem); }
  PeerVerdict VerifyMade(const Wish& wish) const {
    return Verify(MakeByHand(root_, wish).certificate);
  }

  void ExpectRefused(const PeerVerdict& verdict, RefusalReason reason, const char* line) const {
    EXPECT_EQ(verdict.status.code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(RefusalReasonName(verdict.reason), RefusalReasonName(reason))
        << verdict.status.message();
    EXPECT_THAT(verdict.status.message(), HasSubstr(line));
  }

  KeyAndCertificate root_;
  std::unique_ptr<PeerVerifier> verifier_;
};

TEST_F(VerifierTest, ThoseOfTheAuthorityAreTaken) {
  for (const Identity& identity : {Identity{Role::kOperator, ""}, Identity{Role::kWorker, "a"},
                                   Identity{Role::kCoordinator, ""}}) {
    const PeerVerdict verdict = Verify(Issue(root_, identity, 1)->certificate);
    EXPECT_TRUE(verdict.status.ok()) << verdict.status.ToString();
    EXPECT_EQ(verdict.identity, identity);
  }
  EXPECT_TRUE(VerifyMade(Wish()).status.ok())
      << "the ones made by hand differ in their wishes alone";
}

TEST_F(VerifierTest, NoneAndNonsense) {
  ExpectRefused(Verify(""), RefusalReason::kNoCertificate, "--certs");
  ExpectRefused(Verify("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
                RefusalReason::kNoCertificate, "not a certificate");
}

TEST_F(VerifierTest, AnotherAuthoritys) {
  const KeyAndCertificate other = *MakeAuthority(10);  // Of the same name.
  ExpectRefused(Verify(Issue(other, {Role::kOperator, ""}, 1)->certificate),
                RefusalReason::kForeignAuthority, "not one of this lab's authority");
  // A certificate is no authority, whatever it was signed for.
  const KeyAndCertificate worker = *Issue(root_, {Role::kWorker, "a"}, 1);
  ExpectRefused(Verify(MakeByHand(worker, {}).certificate), RefusalReason::kForeignAuthority,
                "authority");
}

TEST_F(VerifierTest, ItsTime) {
  ExpectRefused(VerifyMade({.from = -3600, .until = -60}), RefusalReason::kExpired, "has expired");
  ExpectRefused(VerifyMade({.from = 3600, .until = 7200}), RefusalReason::kExpired,
                "not yet valid");
}

TEST_F(VerifierTest, WhoItIsFor) {
  ExpectRefused(VerifyMade({.names = ""}), RefusalReason::kNoIdentity, "0 URIs");
  ExpectRefused(VerifyMade({.names = "DNS:operator"}), RefusalReason::kNoIdentity, "0 URIs");
  ExpectRefused(VerifyMade({.names = "URI:heddle:viewer,URI:heddle:operator"}),
                RefusalReason::kNoIdentity, "2 URIs");
  ExpectRefused(VerifyMade({.names = "URI:heddle:root"}), RefusalReason::kNoIdentity, "root");
  ExpectRefused(Verify(root_.certificate), RefusalReason::kNoIdentity, "0 URIs");
}

TEST_F(VerifierTest, WhatItIsFor) {
  ExpectRefused(VerifyMade({.usage = "serverAuth"}), RefusalReason::kForeignAuthority,
                "not meant for the role operator");
  ExpectRefused(VerifyMade({.names = "URI:heddle:coordinator"}), RefusalReason::kForeignAuthority,
                "not meant for the role coordinator");
}

}  // namespace
}  // namespace heddle::elastic
