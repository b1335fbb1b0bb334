// What a handshake's messages prove, against HMAC written out anew, and what a dialler makes of
// each answer.
#include "comm/transport/handshake.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace heddle::comm {
namespace {

std::string Hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    text += fmt::format("{:02x}", static_cast<int>(byte));
  }
  return text;
}

Hello SomeHello() {
  Hello hello;
  hello.traffic_class = 1;
  hello.generation = 9;
  hello.source = 2;
  hello.target = 5;
  hello.job = Sha256("job");
  hello.source_name = Sha256("worker-2");
  hello.target_name = Sha256("worker-5");
  hello.nonce = Sha256("a nonce");
  return hello;
}

Challenge SomeChallenge() {
  Challenge challenge;
  challenge.nonce = Sha256("another nonce");
  return challenge;
}

template <typename T>
void Append(Bytes& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// The label, the hello, the challenge and one number more.
Digest ProofOf(const std::string& label, const Hello& hello, uint32_t last) {
  const auto text = AsBytes(label);
  Bytes message(text.begin(), text.end());
  Append(message, hello);
  Append(message, SomeChallenge());
  Append(message, last);
  return Hmac("secret", message);
}

// FIPS 180-2's example and RFC 4231's second.
TEST(HandshakeTest, DigestsAreThoseOfTheStandards) {
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Hmac("Jefe", AsBytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(HandshakeTest, ADigestIsTheSameOnlyInEveryByte) {
  const Digest digest = Sha256("abc");
  EXPECT_TRUE(SameDigest(digest, Sha256("abc")));
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(SameDigest(digest, other)) << i;
  }
}

TEST(HandshakeTest, NoncesAreNeverTheSame) {
  EXPECT_NE(MakeNonce(), MakeNonce());
  EXPECT_NE(MakeNonce(), Digest{});
}

TEST(HandshakeTest, EveryVerdictHasAName) {
  const std::pair<VerdictCode, std::string> names[] = {
      {VerdictCode::kWelcome, "welcome"},       {VerdictCode::kStaleGeneration, "stale_generation"},
      {VerdictCode::kWrongVersion, "version"},  {VerdictCode::kWrongJob, "job"},
      {VerdictCode::kWrongSecret, "secret"},    {VerdictCode::kWrongPeer, "peer"},
      {VerdictCode::kDuplicate, "duplicate"},   {VerdictCode::kOverload, "overload"},
      {VerdictCode::kMalformed, "malformed"},   {VerdictCode::kWrongTls, "tls"},
      {static_cast<VerdictCode>(77), "unknown"}};
  for (const auto& [code, name] : names) {
    EXPECT_EQ(VerdictName(code), name);
  }
}

TEST(HandshakeTest, AProofIsOfTheSecretAndAllThatWasSaid) {
  const Proof plain = ProveDial("secret", SomeHello(), SomeChallenge(), false);
  EXPECT_EQ(plain.tls, 0U);
  EXPECT_EQ(plain.mac, ProofOf("heddle-dial", SomeHello(), 0));
  const Proof encrypted = ProveDial("secret", SomeHello(), SomeChallenge(), true);
  EXPECT_EQ(encrypted.tls, 1U);
  EXPECT_EQ(encrypted.mac, ProofOf("heddle-dial", SomeHello(), 1));
  for (const VerdictCode code : {VerdictCode::kWelcome, VerdictCode::kStaleGeneration}) {
    EXPECT_EQ(ProveAccept("secret", SomeHello(), SomeChallenge(), code),
              ProofOf("heddle-accept", SomeHello(), static_cast<uint32_t>(code)));
  }
  EXPECT_NE(ProveDial("guess", SomeHello(), SomeChallenge(), false).mac, plain.mac);
  EXPECT_NE(ProveDial("secret", SomeHello(), Challenge{}, false).mac, plain.mac);
}

TEST(HandshakeTest, AKeyIsOfOneHandshakeAlone) {
  const Digest key = DeriveConnectionKey("secret", SomeHello(), SomeChallenge());
  EXPECT_EQ(key, DeriveConnectionKey("secret", SomeHello(), SomeChallenge()));
  EXPECT_NE(key, DeriveConnectionKey("guess", SomeHello(), SomeChallenge()));
  EXPECT_NE(key, DeriveConnectionKey("secret", SomeHello(), Challenge{}));
  Hello other = SomeHello();
  other.traffic_class = 0;
  EXPECT_NE(key, DeriveConnectionKey("secret", other, SomeChallenge()));
}

TEST(HandshakeTest, AMismatchOfTlsSaysWhichEndHasIt) {
  EXPECT_EQ(TlsMismatch(true),
            "TLS is on here and off there: comm.tls must be the same for all workers");
  EXPECT_EQ(TlsMismatch(false),
            "TLS is off here and on there: comm.tls must be the same for all workers");
}

Status Checked(const Verdict& verdict) {
  const Identity own{.job = Sha256("job"), .secret = "secret", .tls = true};
  return CheckVerdict(own, SomeHello(), SomeChallenge(), verdict);
}

Verdict Proved(VerdictCode code) {
  return {.code = code, .mac = ProveAccept("secret", SomeHello(), SomeChallenge(), code)};
}

TEST(HandshakeTest, AWelcomeIsBelievedWithItsProofAlone) {
  EXPECT_TRUE(Checked(Proved(VerdictCode::kWelcome)).ok());
  for (const Digest& mac :
       {Digest{}, ProveAccept("guess", SomeHello(), SomeChallenge(), VerdictCode::kWelcome),
        ProveAccept("secret", SomeHello(), SomeChallenge(), VerdictCode::kDuplicate),
        ProveDial("secret", SomeHello(), SomeChallenge(), false).mac}) {
    const Status status = Checked({.code = VerdictCode::kWelcome, .mac = mac});
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(status.message(), "it does not know the job's secret");
  }
}

TEST(HandshakeTest, EachRefusalIsAnErrorOfItsOwn) {
  struct Case {
    VerdictCode code;
    StatusCode status;
    std::string message;
  };
  const Case cases[] = {
      {VerdictCode::kStaleGeneration, StatusCode::kAborted, "generation 9 is stale there"},
      {VerdictCode::kWrongVersion, StatusCode::kUnavailable,
       "refused: it speaks another protocol version than 5"},
      {VerdictCode::kWrongJob, StatusCode::kUnauthenticated, "refused: another job or secret"},
      {VerdictCode::kWrongSecret, StatusCode::kUnauthenticated, "refused: another job or secret"},
      {VerdictCode::kWrongTls, StatusCode::kUnauthenticated, "refused: " + TlsMismatch(true)},
      {VerdictCode::kWrongPeer, StatusCode::kUnavailable, "refused: peer"},
      {VerdictCode::kDuplicate, StatusCode::kUnavailable, "refused: duplicate"},
      {VerdictCode::kOverload, StatusCode::kUnavailable, "refused: overload"},
      {VerdictCode::kMalformed, StatusCode::kUnavailable, "refused: malformed"},
      {static_cast<VerdictCode>(77), StatusCode::kUnavailable, "refused: unknown"}};
  for (const Case& one : cases) {
    const Status status = Checked(Proved(one.code));
    EXPECT_EQ(status.code(), one.status) << one.message;
    EXPECT_EQ(status.message(), one.message);
  }
  Verdict foreign = Proved(VerdictCode::kWelcome);
  foreign.magic = 1;
  EXPECT_EQ(Checked(foreign).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Checked(foreign).message(), "the answer is not Heddle's");
}

}  // namespace
}  // namespace heddle::comm
