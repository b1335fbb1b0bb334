#include "elastic/grpc/enrolment.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/system/file.h"
#include "elastic/grpc/client.h"
#include "elastic/identity/authority.h"
#include "elastic/identity/fetch_authority.h"
#include "elastic/identity/join_token.h"
#include "elastic/identity/request.h"
#include "elastic/protocol/coordinator_route.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(500);
constexpr Duration kLookAgain = std::chrono::milliseconds(200);

// True for errors that a later attempt, or another coordinator, may not return.
bool MayPass(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

// Joins at one coordinator and writes the folder.
Status JoinAt(const std::string& address, const JoinToken& token, const JoinOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string root,
                          FetchAuthority(address, token.fingerprint, After(kConnectTimeout)));
  HEDDLE_ASSIGN_OR_RETURN(const KeyAndRequest own, MakeRequest());
  Credentials known;
  known.authority = root;
  HEDDLE_ASSIGN_OR_RETURN(
      const std::string certificate,
      CoordinatorClient(address, known).Join(token.secret, options.name, own.request));
  return ReplaceParty(options.folder, {.key = own.key, .certificate = certificate}, root);
}

}  // namespace

Status JoinByToken(const JoinOptions& options) {
  HEDDLE_RETURN_IF_ERROR(ParseIdentity("worker/" + options.name).status());
  if (ReadCredentials(options.folder).ok()) {
    return Status::Ok();  // It has joined before.
  }
  const Result<std::string> text = ReadSecret(options.token_file);
  HEDDLE_RETURN_IF_ERROR(text.status().WithContext("--join-token-file"));
  const Result<JoinToken> token = ParseJoinToken(*text);
  HEDDLE_RETURN_IF_ERROR(token.status().WithContext("--join-token-file {}", options.token_file));
  CoordinatorRoute route(options.coordinator);
  const Deadline deadline = After(kWelcomeTimeout);
  while (true) {
    Status status;
    for (size_t i = 0; i < route.listed().size(); ++i, route.MoveOn("")) {
      status = JoinAt(route.current(), *token, options);
      if (status.ok()) {
        LogInfo("joined as worker/{}, the certificate is in {}", options.name, options.folder);
        return ReadCredentials(options.folder).status();
      }
      if (!MayPass(status)) {
        return status;
      }
    }
    if (Now() >= deadline || (options.asked_to_end && options.asked_to_end())) {
      return status.WithContext("no coordinator takes the join token");
    }
    // lint: allow sleep: a poll, of what no condition of this process carries.
    std::this_thread::sleep_until(std::min(deadline, After(kTryAgain)));
  }
}

Renewal::Renewal(Options options, std::unique_ptr<OwnCertificate> own)
    : options_(std::move(options)),
      own_(std::move(own)) {
  thread_ = Thread("renewal", [this] { Run(); });
}

Renewal::~Renewal() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.Join();
}

Result<std::unique_ptr<Renewal>> Renewal::Start(Options options) {
  HEDDLE_ASSIGN_OR_RETURN(Credentials credentials, ReadCredentials(options.folder));
  HEDDLE_ASSIGN_OR_RETURN(auto own, OwnCertificate::Make(std::move(credentials)));
  return std::unique_ptr<Renewal>(new Renewal(std::move(options), std::move(own)));
}

void Renewal::NoteEnd() {
  if (options_.ends) {
    options_.ends(own_->life().ends);
  }
}

void Renewal::Run() {
  NoteEnd();
  while (true) {
    Look();
    const MutexLock lock(mutex_);
    const Time next = After(kLookAgain);
    while (!stopping_ && Now() < next) {
      wake_.WaitUntil(mutex_, next);
    }
    if (stopping_) {
      return;
    }
  }
}

void Renewal::Look() {
  // The certificate may have been replaced from outside.
  if (const Result<bool> another = own_->Look(); another.ok() && *another) {
    again_at_ = 0;
    NoteEnd();
  }
  const CertificateLife life = own_->life();
  const double now = WallClockSeconds();
  if (now < std::max(life.RenewedFrom(), again_at_)) {
    return;
  }
  const Status status = Renew();
  if (status.ok()) {
    trouble_.clear();
    again_at_ = 0;
    NoteEnd();
    LogInfo("the certificate was renewed, until {}", UtcText(own_->life().ends));
    if (options_.renewed) {
      options_.renewed();
    }
    return;
  }
  // Tries again after a twentieth of the certificate's life, so that some attempts are left.
  again_at_ = now + std::clamp((life.ends - life.begins) / 20, Seconds(kLookAgain), 3600.0);
  const bool near = now >= life.WarnedFrom() && warned_ != own_->version();
  if (near || trouble_ != status.message()) {
    warned_ = near ? own_->version() : warned_;
    trouble_ = status.message();
    LogWarning("the certificate, which ends at {}, is not renewed yet: {}", UtcText(life.ends),
               status.message());
  }
}

Status Renewal::Renew() {
  const Credentials current = own_->current();
  HEDDLE_ASSIGN_OR_RETURN(const KeyAndRequest own, MakeRequest());
  HEDDLE_ASSIGN_OR_RETURN(const std::string certificate,
                          CoordinatorClient(options_.coordinator, current).Renew(own.request));
  HEDDLE_RETURN_IF_ERROR(ReplaceParty(current.folder, {.key = own.key, .certificate = certificate},
                                      current.authority));
  return own_->Look().status();
}

}  // namespace heddle::elastic
