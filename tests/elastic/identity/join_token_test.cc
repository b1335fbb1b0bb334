// Tokens as text, and certificates for keys that stay with those who ask.
#include "elastic/identity/join_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "elastic/identity/authority.h"
#include "elastic/identity/credentials.h"
#include "elastic/identity/own_certificate.h"
#include "elastic/identity/party_folder.h"
#include "elastic/identity/request.h"
#include "elastic/identity/verifier.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(JoinTokenTest, IsReadAsItIsWritten) {
  const KeyAndCertificate root = *MakeAuthority(1);
  const JoinToken token = *DrawJoinToken(root.certificate);
  EXPECT_EQ(token.fingerprint, *FingerprintOf(root.certificate));
  EXPECT_EQ(*ParseJoinToken(JoinTokenText(token)), token);
  EXPECT_EQ(*ParseJoinToken("\n " + JoinTokenText(token) + "\r\n"), token);
  EXPECT_NE(DrawJoinToken(root.certificate)->secret, token.secret);
  EXPECT_NE(*FingerprintOf(MakeAuthority(1)->certificate), token.fingerprint);
}

TEST(JoinTokenTest, NothingElseIsReadOrShown) {
  const JoinToken token = *DrawJoinToken(MakeAuthority(1)->certificate);
  const std::string text = JoinTokenText(token);
  for (const std::string& other :
       {std::string(), std::string("heddle-join."), text.substr(1), text.substr(0, text.size() - 1),
        text + "0", text + " " + text, "heddle-join." + token.secret,
        "heddle-join." + std::string(64, 'G') + "." + token.fingerprint}) {
    const auto read = ParseJoinToken(other);
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << other;
    EXPECT_THAT(read.status().message(), Not(HasSubstr(token.secret)));
  }
  EXPECT_EQ(FingerprintOf("none").status().code(), StatusCode::kInvalidArgument);
}

TEST(JoinTokenTest, ItsHashSaysNothingOfIt) {
  const std::string secret(64, 'a');
  // As sha256sum has it: stores keep it.
  EXPECT_EQ(HashOfSecret(secret),
            "dba99ad183a03325dbb1fc20e8c0feaea895eda61e8d56a3557f97cf364a33b4");
  std::string other = secret;
  other.back() = 'b';
  EXPECT_NE(HashOfSecret(other), HashOfSecret(secret));
}

TEST(RequestTest, ItsKeyIsCertified) {
  const KeyAndCertificate root = *MakeAuthority(1);
  const KeyAndRequest own = *MakeRequest();
  const double asked = WallClockSeconds();
  const auto made = IssueFor(root, {Role::kWorker, "a"}, own.request, std::chrono::seconds(8));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const TemporaryFolder folder;
  const std::string place = folder.path() + "/below/a";
  const Status put = ReplaceParty(place, {.key = own.key, .certificate = *made}, root.certificate);
  ASSERT_TRUE(put.ok()) << put.ToString();
  const auto read = ReadCredentials(place);  // Also that key and certificate belong together.
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(IdentityText(read->identity), "worker/a");
  const CertificateLife life = *LifeOf(*made);
  EXPECT_NEAR(life.ends - life.begins, 8, 1.1);
  EXPECT_GE(life.begins, asked - 2.5);
  EXPECT_LE(life.begins, WallClockSeconds() + 2.5);
  // Another in its place.
  const KeyAndRequest next = *MakeRequest();
  EXPECT_NE(next.key, own.key);
  const auto second = IssueFor(root, {Role::kWorker, "a"}, next.request, kRequestedLife);
  ASSERT_TRUE(
      ReplaceParty(place, {.key = next.key, .certificate = *second}, root.certificate).ok());
  EXPECT_EQ(ReadCredentials(place)->certificate, *second);
}

TEST(RequestTest, WhatIsNoRequestIsRefused) {
  const KeyAndCertificate root = *MakeAuthority(1);
  const auto refused = [&](const std::string& request) {
    return IssueFor(root, {Role::kWorker, "a"}, request, std::chrono::seconds(8)).status().code();
  };
  const KeyAndRequest own = *MakeRequest();
  EXPECT_EQ(refused(""), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(root.certificate), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(own.request.substr(0, own.request.size() / 2)), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(own.request + std::string(kMostRequestBytes, '\n')),
            StatusCode::kInvalidArgument);
  // Signed by another key: a byte of the signature, which stands at the end, is another.
  std::string forged = own.request;
  const size_t at = forged.find("\n-----END") - 12;
  forged[at] = forged[at] == 'A' ? 'B' : 'A';
  EXPECT_EQ(refused(forged), StatusCode::kInvalidArgument);
  for (const auto life : {std::chrono::seconds(0), kMostRequestedLife + std::chrono::seconds(1)}) {
    EXPECT_FALSE(IssueFor(root, {Role::kWorker, "a"}, own.request, life).ok());
  }
  EXPECT_FALSE(IssueFor(root, {Role::kWorker, "../a"}, own.request, std::chrono::seconds(8)).ok());
}

}  // namespace
}  // namespace heddle::elastic
