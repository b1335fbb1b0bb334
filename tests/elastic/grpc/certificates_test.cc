// A coordinator with a certificate: who comes in, who is told what, and that a job that trains does
// not notice.
#include <filesystem>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "server_fixture.h"
#include "tests/elastic/identity/handmade.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class CertificatesTest : public GrpcTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(InitAuthority(lab_, {"a", "b", "c"}, 2).ok());
    ASSERT_TRUE(InitAuthority(foreign_, {"a"}, 2).ok());
    credentials_ = Of(lab_, "coordinator");
  }
  static Credentials Of(const std::string& lab, const std::string& party) {
    auto read = ReadCredentials(lab + "/" + party);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return read.ok() ? *read : Credentials();
  }
  CoordinatorClient Client(const std::string& party) {
    return CoordinatorClient(server_->address(), Of(lab_, party));
  }
  int Refused(const std::string& reason) {
    const MutexLock lock(mutex_);
    return refused_[reason];
  }
  void Train() {
    steps_ = 1'000'000;  // More than the test lasts.
    StartServer();
    ASSERT_TRUE(Client("operator").Submit("job", "").ok());
    for (const char* name : {"a", "b", "c"}) {
      AddWorker(name, lab_ + "/worker/" + name);
    }
    ASSERT_TRUE(WaitForStep(3));
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
  Fabric strangers_;
};

TEST_F(CertificatesTest, EachRoleDoesWhatItIsFor) {
  Train();
  EXPECT_TRUE(Client("viewer").Status().ok());
  EXPECT_TRUE(Client("operator").Status().ok());
  const Status submit = Client("viewer").Submit("job", "").status();
  EXPECT_EQ(submit.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(submit.message(), "viewer may not call Submit: it takes the role operator");
  EXPECT_EQ(Client("worker/a").Drain("b").status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Client("viewer").Emulate("a", {}).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Refused("role"), 3);
  ExpectUndisturbed();
}

TEST_F(CertificatesTest, StrangersLearnWhatIsWrong) {
  Train();
  Credentials stranger = Of(foreign_, "operator");
  const Status theirs = CoordinatorClient(server_->address(), stranger).Status().status();
  EXPECT_EQ(theirs.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(theirs.message(), HasSubstr("what answers is not this lab's coordinator"));
  // One that does not look whom it talks to.
  stranger.authority = credentials_.authority;
  const Status status = CoordinatorClient(server_->address(), stranger).Status().status();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("not one of this lab's authority"));
  EXPECT_EQ(Refused("foreign_authority"), 1);
  // No certificate, but TLS.
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = credentials_.authority;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kCoordinatorDnsName);
  const auto stub = wire::Control::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::SslCredentials(tls), arguments));
  grpc::ClientContext context;
  wire::JobStatus reply;
  const grpc::Status none = stub->Status(&context, {}, &reply);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(none.error_message(), HasSubstr("--certs"));
  EXPECT_EQ(Refused("no_certificate"), 1);
  // No TLS.
  const Status plain = CoordinatorClient(server_->address()).Status().status();
  EXPECT_EQ(plain.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(plain.message(), HasSubstr("--certs"));
  EXPECT_EQ(Refused("no_tls"), 1);
  ExpectUndisturbed();
}

TEST_F(CertificatesTest, ACertificateEnds) {
  Train();
  const std::string root = lab_ + "/authority";
  const KeyAndCertificate late =
      MakeByHand({.key = *ReadFile(root + "/key.pem", 1 << 20),
                  .certificate = *ReadFile(root + "/certificate.pem", 1 << 20)},
                 {.from = -60, .until = -1});
  Credentials expired = credentials_;
  expired.key = late.key;
  expired.certificate = late.certificate;
  const Status status = CoordinatorClient(server_->address(), expired).Status().status();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("has expired"));
  EXPECT_EQ(Refused("expired"), 1);
  ExpectUndisturbed();
}

// A new one is put into its place while a job trains: whoever connects then is shown it.
TEST_F(CertificatesTest, TheCoordinatorsOwnIsReadAgain) {
  Train();
  const auto shown = [&] {
    const auto stub = wire::Control::NewStub(MakeChannel(server_->address(), Of(lab_, "viewer")));
    grpc::ClientContext context;
    wire::JobStatus reply;
    EXPECT_TRUE(stub->Status(&context, {}, &reply).ok());
    const auto pem = context.auth_context()->FindPropertyValues("x509_pem_cert");
    return pem.size() == 1 ? std::string(pem[0].data(), pem[0].size()) : "";
  };
  EXPECT_EQ(shown(), credentials_.certificate);
  const std::string root = lab_ + "/authority";
  const auto made = Issue({.key = *ReadFile(root + "/key.pem", 1 << 20),
                           .certificate = *ReadFile(root + "/certificate.pem", 1 << 20)},
                          {Role::kCoordinator, ""}, 9);
  ASSERT_TRUE(made.ok());
  // One file after the other: what does not fit together yet is not taken.
  ASSERT_TRUE(WriteFileAtomically(lab_ + "/coordinator/certificate.pem", made->certificate).ok());
  EXPECT_EQ(shown(), credentials_.certificate);
  const std::string key = lab_ + "/coordinator/key.pem";
  ASSERT_TRUE(WriteFileAtomically(key, made->key).ok());
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    while (certificate_ends_.size() < 2 && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    ASSERT_EQ(certificate_ends_.size(), 2U);
    EXPECT_NEAR(certificate_ends_[1] - certificate_ends_[0], 7 * 86400, 60);
  }
  EXPECT_EQ(shown(), made->certificate);
  ExpectUndisturbed();
}

TEST_F(CertificatesTest, WorkersOfOthersAreRefusedForGood) {
  Train();
  FakeWorker plain(server_->address(), "d", steps_, strangers_);
  EXPECT_EQ(plain.WaitExit(), 2);
  EXPECT_THAT(plain.exit_reason(), HasSubstr("--certs"));
  FakeWorker viewer(server_->address(), "d", steps_, strangers_, lab_ + "/viewer");
  EXPECT_EQ(viewer.WaitExit(), 2);
  EXPECT_THAT(viewer.exit_reason(), HasSubstr("viewer may not call Session"));
  FakeWorker foreign(server_->address(), "d", steps_, strangers_, foreign_ + "/worker/a");
  EXPECT_EQ(foreign.WaitExit(), 2);
  EXPECT_EQ(Refused("no_tls"), 1);
  EXPECT_EQ(Refused("role"), 1);
  ExpectUndisturbed();
}

TEST_F(CertificatesTest, AWorkerSpeaksForNobodyElse) {
  Train();
  FakeWorker liar(server_->address(), "b", steps_, strangers_, lab_ + "/worker/a");
  EXPECT_EQ(liar.WaitExit(), 2);
  EXPECT_THAT(liar.exit_reason(), HasSubstr("for worker/a, and may not speak for 'b'"));
  EXPECT_EQ(Refused("name"), 1);
  ExpectUndisturbed();
}

TEST_F(CertificatesTest, WhoAsksForTheCoordinatorTakesNoWorkersWord) {
  credentials_ = Of(lab_, "worker/a");  // A worker that listens as if it were the coordinator.
  StartServer();
  const Status status = Client("operator").Status().status();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("what answers is not this lab's coordinator"));
}

TEST_F(CertificatesTest, ACoordinatorWithoutOneIsNotTrusted) {
  credentials_ = {};
  StartServer();
  const Status status = Client("operator").Status().status();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("does not speak TLS"));
  EXPECT_TRUE(CoordinatorClient(server_->address()).Status().ok());
}

}  // namespace
}  // namespace heddle::elastic
