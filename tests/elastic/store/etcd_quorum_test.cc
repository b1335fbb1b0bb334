// Three members of etcd, of which some are lost: what was acknowledged stays, and the store is one.
#include <csignal>

#include <gtest/gtest.h>

#include "etcd_cluster.h"
#include "some_state.h"

namespace heddle::elastic {
namespace {

constexpr const char* kPrefix = "/heddle/quorum";

class EtcdQuorumTest : public testing::Test {
 protected:
  // As the coordinator does: again until it is stored.
  void SaveNext() {
    ++state_.known_step;
    Status saved;
    for (const Deadline deadline = After(EtcdCluster::kPatience); Now() < deadline;) {
      saved = store_->Save(state_);
      if (saved.ok()) {
        return;
      }
      ASSERT_EQ(saved.code(), StatusCode::kUnavailable) << saved.ToString();
    }
    FAIL() << saved.ToString();
  }
  void ExpectNothingLost() {
    store_.reset();
    store_ = Lead(cluster_.Address(kPrefix));
    const auto loaded = store_->Load();
    ASSERT_TRUE(loaded.ok() && *loaded) << loaded.status().ToString();
    EXPECT_EQ((*loaded)->known_step, state_.known_step);
  }

  EtcdCluster cluster_{3};
  std::unique_ptr<StateStore> store_ = Lead(cluster_.Address(kPrefix));
  DurableState state_ = SomeState();
};

TEST_F(EtcdQuorumTest, AnyMemberMayBeKilledEtcdsLeaderToo) {
  for (size_t i = 0; i < cluster_.size(); ++i) {
    SaveNext();
    cluster_.Signal(i, SIGKILL);
    SaveNext();
    SaveNext();
    cluster_.Start(i);
    cluster_.AwaitQuorum();
  }
  EXPECT_TRUE(store_->Owned().ok());
  ExpectNothingLost();
}

TEST_F(EtcdQuorumTest, WithoutAMajorityNothingIsAcknowledged) {
  SaveNext();
  cluster_.Signal(0, SIGSTOP);
  cluster_.Signal(1, SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    DurableState lost = state_;
    lost.known_step = 10000 + i;
    const Status saved = store_->Save(lost);
    EXPECT_EQ(saved.code(), StatusCode::kUnavailable) << saved.ToString();
  }
  cluster_.Signal(0, SIGCONT);
  cluster_.Signal(1, SIGCONT);
  SaveNext();
  SaveNext();
  ExpectNothingLost();
}

}  // namespace
}  // namespace heddle::elastic
