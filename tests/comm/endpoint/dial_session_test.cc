// The dialling end of a handshake against a peer that the test plays: each end that it can come to,
// and the bounds of its steps.
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "tests/comm/endpoint/session_ends.h"

namespace heddle::comm {
namespace {

/// What a dialler's end came to.
class DialSessionTest : public Ends {
 protected:
  void Dial(Duration step = kPatience, Duration connect = kPatience, Duration all = kPatience) {
    wishes_.dialled = std::move(own_);
    session_ = std::make_shared<DialSession>(
        *loop_, transport_, Route{.listener = 4, .to = "there"}, identity_, hello_, After(all),
        [this](Result<std::unique_ptr<Connection>> made) {
          const MutexLock lock(mutex_);
          ++ended_;
          if (made.ok()) {
            made_ = *made != nullptr;
          } else {
            status_ = made.status();
          }
          changed_.NotifyAll();
        });
    On([&] { session_->Start(After(connect), step); });
  }
  void TearDown() override {
    On([&] {
      if (session_ != nullptr) {
        session_->Drop();
      }
    });
    session_ = nullptr;
    Ends::TearDown();
  }
  Status End() {
    const MutexLock lock(mutex_);
    for (const Deadline deadline = After(kPatience); ended_ == 0 && Now() < deadline;) {
      changed_.WaitUntil(mutex_, deadline);
    }
    EXPECT_EQ(ended_, 1);
    return status_;
  }
  /// Hears the hello, and asks for the proof.
  void Challenged() {
    const auto hello = Hear<Hello>();
    EXPECT_EQ(std::memcmp(&hello, &hello_, sizeof(hello)), 0);
    challenge_.nonce = MakeNonce();
    Tell(challenge_);
  }
  void Answer(VerdictCode code) {
    const auto proof = Hear<Proof>();
    const Proof expected = ProveDial("secret", hello_, challenge_, identity_.tls);
    EXPECT_EQ(proof.tls, expected.tls);
    EXPECT_EQ(proof.mac, expected.mac);
    Tell(Verdict{.code = code, .mac = ProveAccept("secret", hello_, challenge_, code)});
  }

  Identity identity_ = Self();
  Hello hello_ = SomeHello();
  Challenge challenge_;
  std::shared_ptr<DialSession> session_;
  Mutex mutex_;
  CondVar changed_;
  Status status_ HEDDLE_GUARDED_BY(mutex_);
  bool made_ HEDDLE_GUARDED_BY(mutex_) = false;
  int ended_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

TEST_F(DialSessionTest, AWelcomeBeginsTheConnection) {
  identity_ = Self(true);
  Dial();
  Challenged();
  Answer(VerdictCode::kWelcome);
  EXPECT_TRUE(End().ok());
  const MutexLock lock(mutex_);
  EXPECT_TRUE(made_);
  EXPECT_EQ(wishes_.begun->listener, 4U);
  EXPECT_EQ(wishes_.begun->traffic_class, TrafficClass::kUrgent);
  EXPECT_TRUE(wishes_.begun->dialled);
  EXPECT_TRUE(wishes_.begun->encrypted);
  EXPECT_EQ(wishes_.begun->key, DeriveConnectionKey("secret", hello_, challenge_));
}

TEST_F(DialSessionTest, EachRefusalIsWhatItIs) {
  Dial();
  Challenged();
  Answer(VerdictCode::kStaleGeneration);
  const Status status = End();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.message(), "generation 3 is stale there");
  EXPECT_FALSE(wishes_.begun.has_value());
  EXPECT_TRUE(HearsTheEnd());
}

TEST_F(DialSessionTest, AnAnswerThatIsNotOursIsNoPeer) {
  Dial();
  Hear<Hello>();
  challenge_.magic = 5;
  Tell(challenge_);
  const Status status = End();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(status.message(), "the answer is not Heddle's");
}

TEST_F(DialSessionTest, APeerThatClosesAtAnyStepIsUnavailable) {
  for (const int step : {0, 1, 2}) {
    if (step > 0) {
      TearDown();
      SetUp();
      const MutexLock lock(mutex_);
      ended_ = 0;
    }
    Dial();
    if (step > 0) {
      Challenged();
    }
    if (step > 1) {
      Hear<Proof>();
      Tell(std::byte{1});
    } else if (step == 0) {
      Hear<Hello>();
    }
    peer_.Reset();
    const Status status = End();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << step;
  }
}

TEST_F(DialSessionTest, ADialThatFailsAtOnceIsSaid) {
  wishes_.dial_status = UnavailableError("no way");
  Dial();
  EXPECT_EQ(End().message(), "no way");
}

// The messages of each bound say what was waited for.
TEST_F(DialSessionTest, AChallengeHasAStepsTime) {
  Dial(kShort);
  EXPECT_EQ(End().message(), "deadline passed in the handshake");
  EXPECT_EQ(End().code(), StatusCode::kDeadlineExceeded);
}

/// A socket that takes no more.
void Fill(const UniqueFd& socket) {
  const std::array<std::byte, 4096> bytes{};
  while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
}

TEST_F(DialSessionTest, APortThatDoesNotAnswerHasItsTimeAndNoMore) {
  Fill(own_);
  Dial(kPatience, kShort);
  EXPECT_EQ(End().message(), "deadline passed while connecting");
}

TEST_F(DialSessionTest, NoStepHasMoreThanAllOfIt) {
  Fill(own_);
  Dial(kPatience, kPatience, kShort);
  EXPECT_EQ(End().message(), "deadline passed while connecting");
}

TEST_F(DialSessionTest, AChallengeHasNotMoreThanAllOfIt) {
  Dial(kPatience, kPatience, kShort);
  EXPECT_EQ(End().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(DialSessionTest, AVerdictThatNeverComesIsSaid) {
  challenge_.nonce = MakeNonce();
  Tell(challenge_);
  Dial(kPatience, kPatience, kShort);
  EXPECT_EQ(End().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(DialSessionTest, ASetupHasNotMoreThanAllOfIt) {
  wishes_.advance = NotYet;
  challenge_.nonce = MakeNonce();
  Tell(challenge_);
  const VerdictCode welcome = VerdictCode::kWelcome;
  Tell(Verdict{.code = welcome, .mac = ProveAccept("secret", hello_, challenge_, welcome)});
  Dial(kPatience, kPatience, std::chrono::milliseconds(100));
  EXPECT_EQ(End().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(DialSessionTest, ASetupGoesOnWhenThePeerSpeaks) {
  wishes_.advance = NotYet;
  Dial();
  Challenged();
  Answer(VerdictCode::kWelcome);
  while (wishes_.advanced.load() == 0) {
    On([] {});
  }
  On([&] { wishes_.advance = Made; });
  Tell(std::byte{1});
  EXPECT_TRUE(End().ok());
  const MutexLock lock(mutex_);
  EXPECT_TRUE(made_);
}

TEST_F(DialSessionTest, WhatIsDroppedSaysNothing) {
  Dial();
  Hear<Hello>();
  On([&] { session_->Drop(); });
  EXPECT_TRUE(HearsTheEnd());
  On([] {});
  const MutexLock lock(mutex_);
  EXPECT_EQ(ended_, 0);
}

}  // namespace
}  // namespace heddle::comm
