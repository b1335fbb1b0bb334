// A coordinator that stands by: workers and command lines find the leader through it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/grpc/standby_server.h"
#include "elastic/identity/authority.h"
#include "elastic/identity/credentials.h"
#include "server_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class StandbyTest : public GrpcTest {
 protected:
  void StartStandby() {
    auto standby = StandbyServer::Start("127.0.0.1:0", credentials_);
    ASSERT_TRUE(standby.ok()) << standby.status().ToString();
    standby_ = std::move(*standby);
  }
  void AddWorkerOf(const std::string& coordinator, const std::string& name) {
    workers_[name] = std::make_unique<FakeWorker>(
        coordinator, name, steps_, fabric_, credentials_.empty() ? "" : lab_ + "/worker/" + name);
  }
  // From here on everybody needs a certificate.
  void MakeLab() {
    ASSERT_TRUE(InitAuthority(lab_, {"a", "b", "c"}, 2).ok());
    credentials_ = Of("coordinator");
  }
  Credentials Of(const std::string& party) const {
    auto read = ReadCredentials(lab_ + "/" + party);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return read.ok() ? *read : Credentials();
  }

  const std::string lab_ = folder_.path() + "/lab";
  std::unique_ptr<StandbyServer> standby_;
};

TEST_F(StandbyTest, SaysThatItStandsByAndRefusesChanges) {
  StartStandby();
  CoordinatorClient client(standby_->address());
  EXPECT_EQ(client.Status()->phase(), "standby");
  standby_->Set("", "etcd does not answer");
  EXPECT_EQ(client.Status()->reason(), "etcd does not answer");
  for (const Status& refused :
       {client.Submit("job", "").status(), client.Drain("a").status(), client.Emulate("a", {})}) {
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(refused.message(), "this coordinator stands by: etcd does not answer");
  }
}

TEST_F(StandbyTest, ChangesAreAskedOfTheLeader) {
  StartStandby();
  StartServer();
  standby_->Set(server_->address(), server_->address() + " leads");
  CoordinatorClient one(standby_->address());
  EXPECT_EQ(one.Status()->phase(), "standby") << "of a single one its own";
  EXPECT_TRUE(one.Submit("job", "").ok());
  CoordinatorClient several("127.0.0.1:1," + standby_->address());
  EXPECT_EQ(several.Status()->phase(), "forming") << "of several the leader's";
  EXPECT_EQ(several.Drain("nobody").status().code(), StatusCode::kNotFound);
}

TEST_F(StandbyTest, AmongCoordinatorsWithoutALeaderOneSaysWhy) {
  StartStandby();
  standby_->Set("127.0.0.1:1", "127.0.0.1:1 leads");
  CoordinatorClient several("127.0.0.1:1," + standby_->address());
  EXPECT_EQ(several.Status()->reason(), "127.0.0.1:1 leads");
  EXPECT_EQ(several.Submit("job", "").status().code(), StatusCode::kUnavailable);
}

TEST_F(StandbyTest, WorkersComeThroughItAndGoToTheNextLeader) {
  steps_ = 300;
  StartStandby();
  StartServer();
  standby_->Set(server_->address(), "leads");
  const std::string first = server_->address();
  const std::string second = standby_->address();
  AddWorkerOf(second, "a");
  AddWorkerOf(first + "," + second, "b");
  AddWorkerOf(second + "," + first, "c");
  ASSERT_TRUE(server_->Submit("job", "").ok());
  ASSERT_TRUE(WaitForStep(5));
  // The leader dies, the one that stood by goes on with what it has stored.
  server_.reset();
  store_.reset();
  standby_.reset();
  StartServer(second);
  ExpectFinished();
  EXPECT_FALSE(
      WaitFor([](const LogEvent& event) { return event.kind == "worker_lost"; }, Duration::zero()));
}

// Who the leader is is told to those alone whom the leader would let in.
TEST_F(StandbyTest, LetsInWhomTheLeaderLetsIn) {
  MakeLab();
  StartStandby();
  standby_->Set("127.0.0.1:1", "127.0.0.1:1 leads");
  const Status stranger = CoordinatorClient(standby_->address()).Status().status();
  EXPECT_EQ(stranger.code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(stranger.message().find("127.0.0.1:1"), std::string::npos) << stranger.message();
  CoordinatorClient viewer(standby_->address(), Of("viewer"));
  EXPECT_EQ(viewer.Status()->reason(), "127.0.0.1:1 leads");
  EXPECT_EQ(viewer.Submit("job", "").status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(CoordinatorClient(standby_->address(), Of("worker/a")).Drain("b").status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(
      CoordinatorClient(standby_->address(), Of("operator")).Submit("job", "").status().code(),
      StatusCode::kUnavailable)
      << "the leader, which is not there, was asked";
}

TEST_F(StandbyTest, WithCertificatesAllComeThroughItToTheLeader) {
  steps_ = 30;
  MakeLab();
  StartStandby();
  StartServer();
  standby_->Set(server_->address(), "leads");
  ASSERT_TRUE(CoordinatorClient(standby_->address(), Of("operator")).Submit("job", "").ok());
  for (const char* name : {"a", "b", "c"}) {
    AddWorkerOf(standby_->address(), name);
  }
  ExpectFinished();
}

TEST_F(StandbyTest, APortThatIsTakenIsAnError) {
  StartStandby();
  EXPECT_EQ(StandbyServer::Start(standby_->address()).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace heddle::elastic
