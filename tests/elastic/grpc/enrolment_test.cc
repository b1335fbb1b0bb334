// Workers that get a certificate by a token, and another before it ends, over a real server.
#include "elastic/grpc/enrolment.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "elastic/identity/fetch_authority.h"
#include "elastic/identity/join_token.h"
#include "elastic/identity/request.h"
#include "server_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class EnrolmentTest : public GrpcTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(InitAuthority(lab_, {"b", "c", "d"}, 2).ok());
    ASSERT_TRUE(InitAuthority(foreign_, {}, 2).ok());
    credentials_ = Of(lab_, "coordinator");
    issuer_.authority = *ReadAuthority(lab_ + "/authority");
  }
  static Credentials Of(const std::string& lab, const std::string& party) {
    auto read = ReadCredentials(lab + "/" + party);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return read.ok() ? *read : Credentials();
  }
  CoordinatorClient Client(const std::string& party) {
    return CoordinatorClient(server_->address(), Of(lab_, party));
  }
  JoinToken MakeToken(const std::string& names, double seconds, int64_t uses) {
    const JoinToken token = *DrawJoinToken(credentials_.authority);
    const Status added =
        Client("operator").AddToken(HashOfSecret(token.secret), names, seconds, uses);
    EXPECT_TRUE(added.ok()) << added.ToString();
    return token;
  }
  // As a worker does that has the token in a file.
  Status Join(const JoinToken& token, const std::string& name, const std::string& folder) {
    const std::string file = folder_.path() + "/token-" + name;
    EXPECT_TRUE(WriteFileAtomically(file, JoinTokenText(token) + "\n").ok());
    ::chmod(file.c_str(), 0600);
    return JoinByToken({.coordinator = server_->address(),
                        .token_file = file,
                        .name = name,
                        .folder = folder_.path() + "/" + folder});
  }
  Status JoinNew(const JoinToken& token, const std::string& name) {
    return Join(token, name, fmt::format("joined-{}", ++joined_));
  }
  int Refused(const std::string& reason) {
    const MutexLock lock(mutex_);
    return refused_[reason];
  }
  int Issued(const std::string& by) {
    const MutexLock lock(mutex_);
    return issued_[by];
  }
  void ExpectRefused(const Status& status, const char* line, int count) {
    EXPECT_THAT(status.message(), HasSubstr(line));
    EXPECT_TRUE(status.code() == StatusCode::kUnauthenticated ||
                status.code() == StatusCode::kPermissionDenied)
        << status.ToString();
    EXPECT_EQ(Refused("token"), count);
  }
  // The job goes on, and nobody was lost.
  void ExpectUndisturbed() {
    ASSERT_TRUE(WaitForStep(logged_step_ + 2));
    const MutexLock lock(mutex_);
    for (const LogEvent& event : log_) {
      EXPECT_NE(event.kind, "worker_lost");
      EXPECT_NE(event.kind, "resumed");
    }
  }

  const std::string lab_ = folder_.path() + "/lab";
  const std::string foreign_ = folder_.path() + "/foreign";
  int joined_ = 0;
};

TEST_F(EnrolmentTest, ATokenAdmitsAsOftenAsItMay) {
  StartServer();
  const JoinToken token = MakeToken("gpu-?", 600, 2);
  ASSERT_TRUE(Join(token, "gpu-1", "one").ok());
  const auto one = ReadCredentials(folder_.path() + "/one");
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  EXPECT_EQ(IdentityText(one->identity), "worker/gpu-1");
  EXPECT_EQ(one->authority, credentials_.authority);
  // It has joined, and needs no token.
  EXPECT_TRUE(
      Join({.secret = std::string(64, '0'), .fingerprint = token.fingerprint}, "gpu-1", "one")
          .ok());
  ExpectRefused(JoinNew(token, "cpu-1"), "is for workers named gpu-?", 1);
  ASSERT_TRUE(JoinNew(token, "gpu-2").ok());
  ExpectRefused(JoinNew(token, "gpu-3"), "has been used", 2);
  EXPECT_EQ(Issued("token"), 2);
  // Another coordinator that goes on with the store knows.
  server_.reset();
  store_.reset();
  StartServer();
  ExpectRefused(JoinNew(token, "gpu-4"), "has been used", 3);
  // And so does one whose job came after.
  ASSERT_TRUE(Client("operator").Submit("job", "").ok());
  ExpectRefused(JoinNew(token, "gpu-5"), "has been used", 4);
}

TEST_F(EnrolmentTest, UnknownAndEndedTokensAreRefused) {
  StartServer();
  ExpectRefused(JoinNew(*DrawJoinToken(credentials_.authority), "a"),
                "does not know the join token", 1);
  const JoinToken brief = MakeToken("a", 1, 1);
  const Deadline ends = After(std::chrono::milliseconds(1100));
  {
    const MutexLock lock(mutex_);
    while (Now() < ends) {
      changed_.WaitUntil(mutex_, ends);
    }
  }
  ExpectRefused(JoinNew(brief, "a"), "has ended", 2);
  // Nothing of it is read when the call has no token.
  Credentials known;
  known.authority = credentials_.authority;
  const auto stub = wire::Control::NewStub(MakeChannel(server_->address(), known));
  grpc::ClientContext context;
  wire::CertificateReply reply;
  EXPECT_EQ(stub->Join(&context, {}, &reply).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Refused("token"), 3);
  EXPECT_EQ(Issued("token"), 0);
}

// Of those who come at once with one token no more are admitted than it says.
TEST_F(EnrolmentTest, UsesAreCountedOneByOne) {
  StartServer();
  const JoinToken token = MakeToken("*", 600, 3);
  std::atomic<int> admitted = 0;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back("joiner", [&, i] {
        Credentials known;
        known.authority = credentials_.authority;
        admitted += CoordinatorClient(server_->address(), known)
                        .Join(token.secret, fmt::format("w{}", i), MakeRequest()->request)
                        .ok();
      });
    }
  }
  EXPECT_EQ(admitted, 3);
  EXPECT_EQ(Issued("token"), 3);
}

TEST_F(EnrolmentTest, ARequestOfNoUseTakesNoUse) {
  StartServer();
  const JoinToken token = MakeToken("a", 600, 1);
  Credentials known;
  known.authority = credentials_.authority;
  CoordinatorClient client(server_->address(), known);
  EXPECT_EQ(client.Join(token.secret, "a", "no request").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(client.Join(token.secret, "../a", MakeRequest()->request).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(client.Join(token.secret, "a", MakeRequest()->request).ok());
}

TEST_F(EnrolmentTest, TheTokenIsShownToItsOwnLabAlone) {
  credentials_ = Of(foreign_, "coordinator");
  StartServer();
  const JoinToken token = *DrawJoinToken(Of(lab_, "operator").authority);
  const Status status = JoinNew(token, "a");
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("not of the lab that the join token was made for"));
  EXPECT_EQ(Refused("token"), 0) << "it was not sent";
}

// One that shows the lab's root beside a certificate that is none of the lab's coordinator.
TEST_F(EnrolmentTest, WhoOnlyKnowsTheRootLearnsNothing) {
  Credentials impostor = Of(foreign_, "coordinator");
  impostor.certificate += Of(lab_, "operator").authority;
  credentials_ = impostor;
  StartServer();
  const JoinToken token = *DrawJoinToken(Of(lab_, "operator").authority);
  ASSERT_TRUE(FetchAuthority(server_->address(), token.fingerprint, After(kPatience)).ok());
  const Status status = JoinNew(token, "a");
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("not this lab's coordinator"));
  EXPECT_EQ(Refused("token"), 0) << "it was not sent";
}

TEST_F(EnrolmentTest, WithoutAnAuthorityTheCoordinatorSaysSo) {
  issuer_ = {};
  StartServer();
  const Status made = Client("operator").AddToken(std::string(64, 'a'), "a", 60, 1);
  EXPECT_EQ(made.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(made.message(), HasSubstr("--authority DIR"));
  EXPECT_EQ(Client("worker/b").Renew(MakeRequest()->request).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(EnrolmentTest, OnlyOperatorsMakeTokensAndOnlyWorkersRenew) {
  StartServer();
  for (const char* party : {"viewer", "worker/b"}) {
    EXPECT_EQ(Client(party).AddToken(std::string(64, 'a'), "a", 60, 1).code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(Client(party).Revoke("c").code(), StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(Client("operator").Renew(MakeRequest()->request).status().code(),
            StatusCode::kPermissionDenied);
}

// Lives of seconds: a certificate ends several times while the job trains, and is another by then.
TEST_F(EnrolmentTest, AWorkerRenewsItsCertificateWhileItTrains) {
  issuer_.life = std::chrono::seconds(3);
  steps_ = 1'000'000;
  StartServer();
  ASSERT_TRUE(Client("operator").Submit("job", "").ok());
  ASSERT_TRUE(Join(MakeToken("a", 600, 1), "a", "a").ok());
  const std::string folder = folder_.path() + "/a";
  const std::string first = ReadCredentials(folder)->certificate;
  AddWorker("a", folder);
  AddWorker("b", lab_ + "/worker/b");
  AddWorker("c", lab_ + "/worker/c");
  const auto renewal =
      Renewal::Start({.coordinator = server_->address(), .folder = folder, .renewed = [this] {
                        workers_.at("a")->Refresh();
                      }});
  ASSERT_TRUE(renewal.ok()) << renewal.status().ToString();
  ASSERT_TRUE(WaitForStep(3));
  const Deadline deadline = After(kPatience);
  {
    const MutexLock lock(mutex_);
    while (issued_["renewal"] < 4 && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    EXPECT_GE(issued_["renewal"], 4);
  }
  EXPECT_NE(ReadCredentials(folder)->certificate, first);
  EXPECT_EQ(ReadCredentials(folder)->identity, (Identity{Role::kWorker, "a"}));
  ExpectUndisturbed();
  EXPECT_GE(workers_.at("a")->streams(), 3) << "others took the place of the first stream";
  EXPECT_EQ(Refused("expired"), 0);
}

TEST_F(EnrolmentTest, WhatIsRevokedIsNotRenewedAndEnds) {
  steps_ = 1'000'000;
  StartServer();
  ASSERT_TRUE(Client("operator").Submit("job", "").ok());
  for (const char* name : {"b", "c", "d"}) {
    AddWorker(name, lab_ + "/worker/" + name);
  }
  ASSERT_TRUE(WaitForStep(3));
  EXPECT_TRUE(Client("worker/b").Renew(MakeRequest()->request).ok());
  ASSERT_TRUE(Client("operator").Revoke("b").ok());
  EXPECT_EQ(Client("worker/b").Renew(MakeRequest()->request).status().message(),
            "the certificate of worker/b was revoked");
  EXPECT_TRUE(WaitFor([](const LogEvent& event) {
    return event.kind == "worker_lost" && std::get<std::string>(*event.Find("worker")) == "b";
  })) << "its stream was ended, and no other is let in";
  EXPECT_TRUE(Client("worker/c").Renew(MakeRequest()->request).ok());
  EXPECT_GE(Refused("revoked"), 1);
  server_.reset();
  store_.reset();
  StartServer();
  EXPECT_EQ(Client("worker/b").Renew(MakeRequest()->request).status().code(),
            StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace heddle::elastic
