// A store that fails, hangs or belongs to another coordinator: nothing is told before it is stored,
// nobody is lost for it, and everything goes on when it can.
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/identity/join_token.h"
#include "elastic/identity/request.h"
#include "server_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

// Does what it is told to, and remembers what was stored, by its process' death too.
class FaultyStore : public StateStore {
 public:
  struct Disk {
    Mutex mutex;
    CondVar changed;
    std::optional<DurableState> state HEDDLE_GUARDED_BY(mutex);
    Status fault HEDDLE_GUARDED_BY(mutex);
    bool hangs HEDDLE_GUARDED_BY(mutex) = false;
    int refused HEDDLE_GUARDED_BY(mutex) = 0;
  };
  explicit FaultyStore(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}

  Result<std::optional<DurableState>> Load() override {
    const MutexLock lock(disk_->mutex);
    return disk_->state;
  }
  Status Save(const DurableState& state) override {
    const MutexLock lock(disk_->mutex);
    while (disk_->hangs) {
      disk_->changed.WaitUntil(disk_->mutex, After(std::chrono::seconds(1)));
    }
    if (!disk_->fault.ok()) {
      ++disk_->refused;
      disk_->changed.NotifyAll();
      return disk_->fault;
    }
    if (disk_->state && state.generation_counter < disk_->state->generation_counter) {
      return AbortedError("another coordinator has written");  // As the shipped store has it.
    }
    // Whatever else changes, a job that is submitted too: the tests revoke and let end nothing.
    EXPECT_GE(state.admission.grants.size(),
              disk_->state ? disk_->state->admission.grants.size() : 0);
    disk_->state = state;
    disk_->changed.NotifyAll();
    return Status::Ok();
  }

 private:
  const std::shared_ptr<Disk> disk_;
};

class StoreFaults : public GrpcTest {
 protected:
  ~StoreFaults() override { Repair(); }
  std::unique_ptr<StateStore> OpenStore() override { return std::make_unique<FaultyStore>(disk_); }

  void Break(const Status& fault) {
    const MutexLock lock(disk_->mutex);
    disk_->fault = fault;
  }
  void Hang() {
    const MutexLock lock(disk_->mutex);
    disk_->hangs = true;
  }
  void Repair() {
    const MutexLock lock(disk_->mutex);
    disk_->fault = Status::Ok();
    disk_->hangs = false;
    disk_->changed.NotifyAll();
  }
  // Waits until so many writes were refused.
  bool WaitForRefused(int count) {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(disk_->mutex);
    while (disk_->refused < count && Now() < deadline) {
      disk_->changed.WaitUntil(disk_->mutex, deadline);
    }
    return disk_->refused >= count;
  }
  bool WaitForStored(const std::string& job) {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(disk_->mutex);
    while (!(disk_->state && disk_->state->job_id == job) && Now() < deadline) {
      disk_->changed.WaitUntil(disk_->mutex, deadline);
    }
    return disk_->state && disk_->state->job_id == job;
  }
  std::optional<DurableState> Stored() {
    const MutexLock lock(disk_->mutex);
    return disk_->state;
  }
  int Count(const std::string& kind) {
    const MutexLock lock(mutex_);
    return static_cast<int>(std::count_if(
        log_.begin(), log_.end(), [&](const LogEvent& event) { return event.kind == kind; }));
  }
  void StartJob() {
    StartServer();
    ASSERT_TRUE(server_->Submit("job", "").ok());
    for (const char* name : {"a", "b", "c"}) {
      AddWorker(name);
    }
    ASSERT_TRUE(WaitForStep(5));
  }

  const std::shared_ptr<FaultyStore::Disk> disk_ = std::make_shared<FaultyStore::Disk>();
};

const Status kFull(StatusCode::kResourceExhausted, "no space left");

TEST_F(StoreFaults, AJobThatCannotBeStoredIsRefusedAndNeverThere) {
  StartServer();
  CoordinatorClient client(server_->address());
  Break(kFull);
  const auto refused = client.Submit("job", "");
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted) << refused.status().ToString();
  EXPECT_THAT(refused.status().message(), HasSubstr("no space left"));
  EXPECT_EQ(client.Status()->phase(), "idle");
  EXPECT_EQ(Count("job_started"), 0);
  // A second one is told at once, and the reason is shown.
  ASSERT_TRUE(WaitForKind("store_stalled"));
  EXPECT_EQ(client.Submit("job", "").status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(client.Status()->reason(), HasSubstr("no space left"));
  Repair();
  ASSERT_TRUE(WaitForKind("store_works"));
  EXPECT_EQ(client.Status()->reason(), "");
  EXPECT_EQ(Stored()->job_id, "");
  EXPECT_TRUE(client.Submit("job", "").ok());
  EXPECT_EQ(Stored()->job_id, "the-job");
}

TEST_F(StoreFaults, ASubmissionWhoseWriteHangsIsRefusedAndUndoneWhenItArrives) {
  used_generation_ = 12;
  StartServer();
  CoordinatorClient client(server_->address());
  Hang();
  const auto refused = client.Submit("job", "");
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable) << refused.status().ToString();
  EXPECT_EQ(client.Status()->phase(), "idle") << "the loop answers meanwhile";
  Repair();
  ASSERT_TRUE(WaitForKind("store_works"));
  EXPECT_TRUE(WaitForStored(""));
  EXPECT_EQ(client.Status()->phase(), "idle");
  EXPECT_EQ(Count("job_started"), 0);
  EXPECT_EQ(Stored()->generation_counter, 12) << "a number that was stored may have been seen";
  used_generation_ = 0;
  EXPECT_TRUE(client.Submit("job", "").ok());
  EXPECT_TRUE(WaitForStored("the-job"));
  EXPECT_GE(Stored()->generation_counter, 12);
}

TEST_F(StoreFaults, TrainingGoesOnAndAChangeWaits) {
  steps_ = 1500;
  StartJob();
  Break(kFull);
  KillWorker("b");
  ASSERT_TRUE(WaitForKind("store_stalled"));
  // The survivors are asked for nothing, and nobody is late with an answer: longer than a lease.
  ASSERT_TRUE(WaitForRefused(5));
  const int64_t stored = Stored()->generation_counter;
  EXPECT_EQ(workers_.at("a")->generation(), stored);
  EXPECT_THAT(CoordinatorClient(server_->address()).Status()->reason(),
              HasSubstr("cannot be stored"));
  Repair();
  ASSERT_TRUE(WaitForKind("resumed"));
  fabric_.Hurry();
  ExpectFinished();
  EXPECT_EQ(Count("store_stalled"), 1);
  EXPECT_EQ(Count("store_works"), 1);
  EXPECT_EQ(Count("worker_lost"), 1) << "only the one that was killed";
}

TEST_F(StoreFaults, AWriteThatHangsHoldsNobodyUpButTheChange) {
  steps_ = 1500;
  StartJob();
  Hang();
  ASSERT_TRUE(WaitForKind("store_stalled"));  // The record of steps is due once a second.
  CoordinatorClient client(server_->address(), {}, kPatience);
  const auto status = client.Status();
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_THAT(status->reason(), HasSubstr("longer than"));
  EXPECT_EQ(client.Drain("a").status().code(), StatusCode::kUnavailable);
  // Longer than every worker's lease, which is what a machine that hears nobody would count.
  ASSERT_FALSE(WaitFor([](const LogEvent& event) { return event.kind == "worker_lost"; },
                       kDefaultLease * 4 / 3));
  Repair();
  fabric_.Hurry();
  ExpectFinished();
  EXPECT_EQ(Count("worker_lost"), 0);
}

TEST_F(StoreFaults, TheEndIsAnnouncedOnceItIsStored) {
  StartServer();
  ASSERT_TRUE(server_->Submit("job", "").ok());
  for (const char* name : {"a", "b"}) {
    AddWorker(name);
  }
  server_->Cancel("before its time");
  ASSERT_TRUE(WaitForKind("job_failed"));
  ASSERT_TRUE(server_->WaitForEnd(After(kPatience)));
  EXPECT_TRUE(server_->Submit("job", "").ok());
  Break(kFull);
  server_->Cancel("by the user");
  ASSERT_TRUE(WaitForKind("store_stalled"));
  EXPECT_FALSE(server_->WaitForEnd(Now()));
  EXPECT_EQ(Count("job_failed"), 1);
  Repair();
  const auto end = server_->WaitForEnd(After(kPatience));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->reason, "by the user");
  EXPECT_EQ(Stored()->failed, "by the user");
}

TEST_F(StoreFaults, ACoordinatorWhoseStoreAnotherHasWrittenEnds) {
  steps_ = 1500;
  StartJob();
  EXPECT_TRUE(server_->Health().ok());
  Break({StatusCode::kAborted, "another coordinator has written"});
  const auto end = server_->WaitForEnd(After(kPatience));
  ASSERT_TRUE(end);
  EXPECT_THAT(server_->Health().message(), HasSubstr("another coordinator has written"));
  workers_.clear();
  // No core is busy with it.
  const auto before = std::clock();
  EXPECT_FALSE(WaitFor([](const LogEvent&) { return false; }, std::chrono::seconds(1)));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 2);
}

// What admits somebody is stored before it is said.
TEST_F(StoreFaults, ATokensUseIsStoredBeforeACertificateIsHandedOut) {
  const std::string lab = folder_.path() + "/lab";
  ASSERT_TRUE(InitAuthority(lab, {}, 2).ok());
  credentials_ = *ReadCredentials(lab + "/coordinator");
  issuer_.authority = *ReadAuthority(lab + "/authority");
  StartServer();
  const JoinToken token = *DrawJoinToken(credentials_.authority);
  const std::string hash = HashOfSecret(token.secret);
  const auto uses = [&] {
    const MutexLock lock(disk_->mutex);
    return disk_->state->admission.grants.at(hash).uses_left;
  };
  CoordinatorClient operator_client(server_->address(), *ReadCredentials(lab + "/operator"));
  ASSERT_TRUE(operator_client.AddToken(hash, "*", 600, 3).ok());
  EXPECT_EQ(uses(), 3);
  Credentials known;
  known.authority = credentials_.authority;
  CoordinatorClient joiner(server_->address(), known);
  ASSERT_TRUE(joiner.Join(token.secret, "a", MakeRequest()->request).ok());
  EXPECT_EQ(uses(), 2);
  ASSERT_TRUE(operator_client.Submit("job", "").ok());
  EXPECT_EQ(uses(), 2);
  Break(UnavailableError("the disk is away"));
  EXPECT_EQ(joiner.Join(token.secret, "b", MakeRequest()->request).status().code(),
            StatusCode::kUnavailable);
  Repair();
  Hang();
  EXPECT_EQ(joiner.Join(token.secret, "c", MakeRequest()->request).status().code(),
            StatusCode::kUnavailable);
  Repair();
  const MutexLock lock(mutex_);
  EXPECT_EQ(issued_["token"], 1);
}

}  // namespace
}  // namespace heddle::elastic
