// Who may write to a store in etcd, whatever became of the leader, its lease and its messages.
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "etcd_cluster.h"
#include "some_state.h"
#include "tests/support/eventually.h"

namespace heddle::elastic {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPrefix = "/heddle/a";

class EtcdStoreTest : public ::testing::Test {
 protected:
  // One transaction past the store, as nobody but this test makes any.
  void Change(const std::function<void(etcdserverpb::TxnRequest&)>& fill) {
    etcdserverpb::TxnRequest txn;
    fill(txn);
    const auto client = EtcdClient::Open(cluster_.Address(kPrefix));
    const auto done = (*client)->Txn(txn, After(EtcdCluster::kPatience));
    ASSERT_TRUE(done.ok()) << done.status().ToString();
  }
  void RemoveLeader() {
    Change([](auto& txn) { Erase(txn, LeaderKey(kPrefix), LeaderKey(kPrefix) + "0"); });
  }
  std::unique_ptr<StateStore> Open(int lease_seconds = 60) {
    return Lead(cluster_.Address(kPrefix, lease_seconds));
  }
  static int64_t KnownStep(StateStore& store) {
    const auto loaded = store.Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() && *loaded ? (*loaded)->known_step : -1;
  }
  static void ExpectLost(StateStore& store) {
    DurableState state = SomeState();
    state.generation_counter = 100;
    state.known_step = 1000;
    EXPECT_EQ(store.Save(state).code(), StatusCode::kAborted);
    EXPECT_EQ(store.Load().status().code(), StatusCode::kAborted);
    EXPECT_EQ(store.Owned().code(), StatusCode::kAborted);
  }

  EtcdCluster cluster_{1};
};

TEST_F(EtcdStoreTest, OneLeadsAndTheOthersKnowWhom) {
  const auto leader = Lead(cluster_.Address(kPrefix), "10.0.0.1:4600");
  const auto election = EtcdElection::Open(cluster_.Address(kPrefix));
  const auto turn = (*election)->Try("10.0.0.2:4600");
  ASSERT_TRUE(turn.ok()) << turn.status().ToString();
  EXPECT_EQ(turn->store, nullptr);
  EXPECT_EQ(turn->leader, "10.0.0.1:4600");
  const auto elsewhere = Lead(cluster_.Address("/heddle/b"));
  EXPECT_NE(elsewhere, nullptr) << "another prefix is another store";
  EXPECT_NE(elsewhere->term().store, leader->term().store);
}

TEST_F(EtcdStoreTest, ALeaderThatEndsIsFollowedAtOnce) {
  const StoreTerm first = Open()->term();
  const auto next = (*EtcdElection::Open(cluster_.Address(kPrefix)))->Try("x:1");
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  ASSERT_NE(next->store, nullptr) << "the lease of a minute was given back";
  EXPECT_EQ(next->store->term().store, first.store);
  EXPECT_GT(next->store->term().number, first.number);
}

TEST_F(EtcdStoreTest, AFormerLeaderWritesNothing) {
  const auto former = Open();
  DurableState state = SomeState();
  ASSERT_TRUE(former->Save(state).ok());
  RemoveLeader();
  ExpectLost(*former);
  const auto leader = Open();
  EXPECT_EQ(KnownStep(*leader), 41);
  ExpectLost(*former);
  state.known_step = 42;
  ASSERT_TRUE(leader->Save(state).ok());
  ExpectLost(*former);
  EXPECT_EQ(KnownStep(*leader), 42);
}

TEST_F(EtcdStoreTest, AFormerLeaderLeavesNoPartsEither) {
  const auto former = Open();
  RemoveLeader();
  const auto leader = Open();
  DurableState large = SomeState();
  large.job_yaml = std::string(3 << 20, 'x');
  EXPECT_EQ(former->Save(large).code(), StatusCode::kAborted);
  ASSERT_TRUE(leader->Save(large).ok());
  ASSERT_TRUE(leader->Save(SomeState()).ok()) << "which removes its own";
  etcdserverpb::TxnRequest look;
  look.add_success()->mutable_request_range()->set_key(PartsKey(kPrefix));
  look.mutable_success(0)->mutable_request_range()->set_range_end(PartsKey(kPrefix) + "~");
  const auto seen =
      (*EtcdClient::Open(cluster_.Address(kPrefix)))->Txn(look, After(EtcdCluster::kPatience));
  ASSERT_TRUE(seen.ok()) << seen.status().ToString();
  EXPECT_EQ(Found(*seen, 0), nullptr);
}

// Its answer was lost: whoever saves next finds another state than it has seen.
TEST_F(EtcdStoreTest, AnEarlierWriteThatArrivedUnseenIsItsOwn) {
  const auto store = Open();
  DurableState state = SomeState();
  ASSERT_TRUE(store->Save(state).ok());
  Change([](auto& txn) {
    Put(txn, StateKey(kPrefix),
        EncodeHead({.generation = 9, .bytes = 2, .parts = 0, .name = ""}) + "{}");
  });
  state.generation_counter = 8;
  EXPECT_EQ(store->Save(state).code(), StatusCode::kAborted) << "generation 9 was given out";
  state.generation_counter = 9;
  state.known_step = 50;
  const Status saved = store->Save(state);
  EXPECT_TRUE(saved.ok()) << saved.ToString();
  EXPECT_EQ(KnownStep(*store), 50);
}

TEST_F(EtcdStoreTest, WhileEtcdIsStoppedNothingIsStoredAndNothingIsLost) {
  const auto store = Open();
  DurableState state = SomeState();
  ASSERT_TRUE(store->Save(state).ok());
  cluster_.Signal(0, SIGSTOP);
  state.known_step = 60;
  const Status during = store->Save(state);
  EXPECT_EQ(during.code(), StatusCode::kUnavailable) << during.ToString();
  EXPECT_THAT(during.message(), HasSubstr("etcd " + cluster_.endpoint(0)));
  EXPECT_TRUE(store->Owned().ok()) << "the lease of a minute has not ended";
  cluster_.Signal(0, SIGCONT);
  cluster_.AwaitQuorum();
  state.known_step = 61;
  const Status after = store->Save(state);
  EXPECT_TRUE(after.ok()) << after.ToString();
  EXPECT_EQ(KnownStep(*store), 61) << "the write that failed did not come after it";
}

TEST_F(EtcdStoreTest, ALeaseThatIsNotRenewedEndsForGood) {
  const auto store = Open(2);
  ASSERT_TRUE(store->Save(SomeState()).ok());
  cluster_.Signal(0, SIGSTOP);
  for (const Deadline deadline = After(EtcdCluster::kPatience);
       store->Owned().ok() && Now() < deadline;) {
    std::this_thread::yield();
  }
  EXPECT_EQ(store->Owned().code(), StatusCode::kAborted);
  cluster_.Signal(0, SIGCONT);
  const auto next = Open();
  EXPECT_EQ(KnownStep(*next), 41);
  ExpectLost(*store);
}

// etcd confirms renewals of a lease whose key is gone: only a look at the key tells.
TEST_F(EtcdStoreTest, ARenewedLeaseAloneIsNoLeadership) {
  const auto store = Open(6);
  RemoveLeader();
  EXPECT_TRUE(testing::Eventually([&] { return !store->Owned().ok(); }));
  EXPECT_EQ(store->Owned().code(), StatusCode::kAborted);
  EXPECT_THAT(store->Owned().message(), HasSubstr("is gone or another's"));
}

TEST_F(EtcdStoreTest, AMemberThatIsNotThereIsPassedOver) {
  EtcdAddress address = cluster_.Address(kPrefix);
  address.endpoints.insert(address.endpoints.begin(), "127.0.0.1:1");
  const auto store = Lead(address);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->Save(SomeState()).ok());
}

TEST_F(EtcdStoreTest, MoreThanItKeepsIsRefused) {
  const auto store = Open();
  ASSERT_TRUE(store->Save(SomeState()).ok());
  DurableState large = SomeState();
  large.job_yaml = std::string(65 << 20, 'x');
  const Status saved = store->Save(large);
  EXPECT_EQ(saved.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(saved.message(), HasSubstr("bytes of state are more than"));
  EXPECT_EQ(KnownStep(*store), 41);
}

TEST_F(EtcdStoreTest, DamagedContentIsNamed) {
  const auto store = Open();
  const auto error = [&] {
    const auto loaded = store->Load();
    EXPECT_EQ(loaded.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(loaded.status().message(), HasSubstr(kPrefix));
    return loaded.status().message();
  };
  const auto put = [&](const std::string& value) {
    Change([&](auto& txn) { Put(txn, StateKey(kPrefix), value); });
  };
  put("others' words");
  EXPECT_THAT(error(), HasSubstr("not a coordinator's state"));
  put("{\"heddle\": 9}\n");
  EXPECT_THAT(error(), HasSubstr("version 9"));
  put("{\"heddle\": 1}\n");
  EXPECT_THAT(error(), HasSubstr("not a coordinator's state"));
  put(EncodeHead({.generation = 1, .bytes = 3, .parts = 0, .name = ""}) + "{}");
  EXPECT_THAT(error(), HasSubstr("2 bytes, expected 3"));
  put(EncodeHead({.generation = 1, .bytes = 3, .parts = 1, .name = "x"}));
  EXPECT_THAT(error(), HasSubstr("part 0 of 1 is missing"));
}

TEST(EtcdTlsTest, BothEndsProveThemselves) {
  EtcdCluster cluster(1, true);
  const auto store = Lead(cluster.Address(kPrefix));
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->Save(SomeState()).ok());

  EtcdAddress wrong = cluster.Address(kPrefix);
  wrong.ca_file = cluster.file("other.pem");
  EXPECT_EQ((*EtcdElection::Open(wrong))->Try("x:1").status().code(), StatusCode::kUnavailable)
      << "a server of another authority";
  EtcdAddress nobody = cluster.Address(kPrefix);
  nobody.certificate_file.clear();
  nobody.key_file.clear();
  EXPECT_EQ((*EtcdElection::Open(nobody))->Try("x:1").status().code(), StatusCode::kUnavailable)
      << "a client without a certificate";
  EtcdAddress missing = cluster.Address(kPrefix);
  missing.ca_file = cluster.file("not-there.pem");
  const auto opened = EtcdElection::Open(missing);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(opened.status().message(), HasSubstr("not-there.pem"));
}

}  // namespace
}  // namespace heddle::elastic
