// The accepting end of a handshake against a peer that the test plays: every refusal, who hears of
// it, and what the connection is begun with.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "tests/comm/endpoint/session_ends.h"

namespace heddle::comm {
namespace {

/// Writes down what it is told.
struct Owner final : AcceptSession::Owner {
  Identity identity() const override { return own; }
  void OnAuthentic(const std::shared_ptr<AcceptSession>& session) override {
    held = session;
    Note("authentic");
    if (answer) {
      answer(*session);
    }
  }
  void OnConnection(const std::shared_ptr<AcceptSession>& /*session*/,
                    std::unique_ptr<Connection> connection) override {
    Note(connection == nullptr ? "nothing" : "connection");
  }
  void OnRefused(const std::shared_ptr<AcceptSession>& /*session*/, VerdictCode reason) override {
    Note("refused " + std::string(VerdictName(reason)));
  }
  void OnGone(const std::shared_ptr<AcceptSession>& /*session*/, const Status& reason) override {
    Note("gone: " + reason.message());
  }
  void Note(const std::string& text) {
    const MutexLock lock(mutex);
    notes.push_back(text);
    changed.NotifyAll();
  }
  std::vector<std::string> Notes(size_t count) {
    const MutexLock lock(mutex);
    for (const Deadline deadline = After(kPatience); notes.size() < count && Now() < deadline;) {
      changed.WaitUntil(mutex, deadline);
    }
    return notes;
  }

  Identity own = Self();
  std::function<void(AcceptSession&)> answer;
  std::shared_ptr<AcceptSession> held;
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> notes HEDDLE_GUARDED_BY(mutex);
};

using Notes = std::vector<std::string>;

class AcceptSessionTest : public Ends {
 protected:
  void SetUp() override {
    Ends::SetUp();
    session_ = std::make_shared<AcceptSession>(*loop_, owner_, transport_, 7, std::move(own_));
    On([&] { session_->Start(); });
  }
  void TearDown() override {
    On([&] {
      session_->Drop();
      owner_.held = nullptr;
    });
    Ends::TearDown();
  }
  /// Says hello and proves what it claims.
  void Prove(const Hello& hello, bool tls = false, const std::string& secret = "secret") {
    Tell(hello);
    challenge_ = Hear<Challenge>();
    Tell(ProveDial(secret, hello, challenge_, tls));
  }

  Owner owner_;
  std::shared_ptr<AcceptSession> session_;
  Challenge challenge_;
};

TEST_F(AcceptSessionTest, WhoIsWelcomeGetsAProofAndAConnection) {
  owner_.answer = [](AcceptSession& session) { session.Welcome(); };
  const Hello hello = SomeHello();
  Prove(hello);
  const auto verdict = Hear<Verdict>();
  EXPECT_EQ(verdict.code, VerdictCode::kWelcome);
  EXPECT_TRUE(CheckVerdict(Self(), hello, challenge_, verdict).ok());
  EXPECT_EQ(owner_.Notes(2), (Notes{"authentic", "connection"}));
  ASSERT_TRUE(wishes_.begun.has_value());
  EXPECT_EQ(wishes_.begun->listener, 7U);
  EXPECT_EQ(wishes_.begun->traffic_class, TrafficClass::kUrgent);
  EXPECT_FALSE(wishes_.begun->dialled);
  EXPECT_FALSE(wishes_.begun->encrypted);
  EXPECT_EQ(wishes_.begun->key, DeriveConnectionKey("secret", hello, challenge_));
  EXPECT_EQ(session_->hello().generation, 3);
  EXPECT_EQ(session_->listener(), 7U);
  EXPECT_EQ(&session_->transport(), &transport_);
  EXPECT_TRUE(session_->authentic());
}

TEST_F(AcceptSessionTest, WhatIsNoHelloIsRefusedWithoutAWord) {
  Hello hello = SomeHello();
  hello.magic = 1;
  Tell(hello);
  EXPECT_EQ(owner_.Notes(1), Notes{"refused malformed"});
  EXPECT_TRUE(HearsTheEnd());
}

TEST_F(AcceptSessionTest, WhoLeavesWithinItsHelloIsMalformed) {
  Tell(SomeHello(), 10);
  On([] {});
  EXPECT_FALSE(session_->authentic());
  peer_.Reset();
  EXPECT_EQ(owner_.Notes(1), Notes{"refused malformed"});
}

TEST_F(AcceptSessionTest, WhoLeavesInsteadOfAProofIsMalformed) {
  Tell(SomeHello());
  Hear<Challenge>();
  peer_.Reset();
  EXPECT_EQ(owner_.Notes(1), Notes{"refused malformed"});
}

TEST_F(AcceptSessionTest, EachClaimThatIsWrongHasItsVerdict) {
  struct Case {
    std::function<void(Hello&)> change;
    std::string secret;
    std::string own_secret;
    VerdictCode code;
  };
  const std::vector<Case> cases = {
      {[](Hello& hello) { hello.version = kProtocolVersion + 1; }, "secret", "secret",
       VerdictCode::kWrongVersion},
      {[](Hello& hello) { hello.version = kProtocolVersion - 1; }, "secret", "secret",
       VerdictCode::kWrongVersion},
      {[](Hello& hello) { hello.job = Sha256("another"); }, "secret", "secret",
       VerdictCode::kWrongJob},
      {[](Hello&) {}, "guess", "secret", VerdictCode::kWrongSecret},
      {[](Hello&) {}, "", "", VerdictCode::kWrongSecret},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    if (i > 0) {
      TearDown();
      SetUp();
      const MutexLock lock(owner_.mutex);
      owner_.notes.clear();
    }
    owner_.own.secret = cases[i].own_secret;
    Hello hello = SomeHello();
    cases[i].change(hello);
    Prove(hello, false, cases[i].secret);
    const auto verdict = Hear<Verdict>();
    EXPECT_EQ(verdict.code, cases[i].code) << i;
    EXPECT_EQ(verdict.magic, static_cast<uint32_t>(kHandshakeMagic));
    EXPECT_EQ(verdict.mac, Digest{}) << "a stranger gets no proof";
    EXPECT_EQ(owner_.Notes(1), Notes{"refused " + std::string(VerdictName(cases[i].code))});
    EXPECT_TRUE(HearsTheEnd());
  }
}

// Whether TLS is spoken is claimed with the proof, and covered by it.
TEST_F(AcceptSessionTest, AProofOfTlsIsNoneWithoutIt) {
  const Hello hello = SomeHello();
  Tell(hello);
  challenge_ = Hear<Challenge>();
  Proof proof = ProveDial("secret", hello, challenge_, true);
  proof.tls = 0;
  Tell(proof);
  EXPECT_EQ(Hear<Verdict>().code, VerdictCode::kWrongSecret);
}

TEST_F(AcceptSessionTest, TlsIsBegunWhereThisWorkerUsesIt) {
  owner_.own = Self(true);
  owner_.answer = [](AcceptSession& session) {
    EXPECT_TRUE(session.peer_uses_tls());
    EXPECT_TRUE(session.identity().tls);
    session.Welcome();
  };
  Prove(SomeHello(), true);
  EXPECT_EQ(owner_.Notes(2), (Notes{"authentic", "connection"}));
  EXPECT_TRUE(wishes_.begun->encrypted);
}

TEST_F(AcceptSessionTest, WhoIsAuthenticAndRefusedGetsAProof) {
  owner_.answer = [](AcceptSession& session) { session.Refuse(VerdictCode::kDuplicate); };
  const Hello hello = SomeHello();
  Prove(hello);
  const auto verdict = Hear<Verdict>();
  EXPECT_EQ(verdict.code, VerdictCode::kDuplicate);
  EXPECT_EQ(verdict.mac, ProveAccept("secret", hello, challenge_, VerdictCode::kDuplicate));
  EXPECT_EQ(owner_.Notes(2), (Notes{"authentic", "refused duplicate"}));
  On([&] { session_->Refuse(VerdictCode::kOverload); });
  EXPECT_EQ(owner_.Notes(2).size(), 2U) << "it has ended";
}

TEST_F(AcceptSessionTest, WhoIsHeldMayTakeItselfBack) {
  Prove(SomeHello());
  EXPECT_EQ(owner_.Notes(1), Notes{"authentic"});
  peer_.Reset();
  EXPECT_EQ(owner_.Notes(2), (Notes{"authentic", "gone: the dialler left"}));
}

TEST_F(AcceptSessionTest, AWelcomeThatNobodyHearsIsALoss) {
  Prove(SomeHello());
  EXPECT_EQ(owner_.Notes(1), Notes{"authentic"});
  On([&] {
    peer_.Reset();
    session_->Welcome();
  });
  const Notes notes = owner_.Notes(2);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_TRUE(notes[1].starts_with("gone: ")) << notes[1];
  EXPECT_FALSE(wishes_.begun.has_value());
}

TEST_F(AcceptSessionTest, ASetupGoesOnWhenThePeerSpeaks) {
  wishes_.advance = NotYet;
  owner_.answer = [](AcceptSession& session) { session.Welcome(); };
  Prove(SomeHello());
  EXPECT_EQ(Hear<Verdict>().code, VerdictCode::kWelcome);
  On([] {});
  EXPECT_EQ(owner_.Notes(1), Notes{"authentic"});
  On([&] { wishes_.advance = Made; });
  Tell(std::byte{1});
  EXPECT_EQ(owner_.Notes(2), (Notes{"authentic", "connection"}));
  EXPECT_EQ(wishes_.advanced.load(), 2);
}

TEST_F(AcceptSessionTest, ASetupThatFailsIsSaid) {
  wishes_.advance = [] { return Result<std::unique_ptr<Connection>>(DataLossError("no form")); };
  owner_.answer = [](AcceptSession& session) { session.Welcome(); };
  Prove(SomeHello());
  EXPECT_EQ(owner_.Notes(2), (Notes{"authentic", "gone: no form"}));
  Hear<Verdict>();
  EXPECT_TRUE(HearsTheEnd());
}

}  // namespace
}  // namespace heddle::comm
