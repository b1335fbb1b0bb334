#include "elastic/service/serve.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/system/end_watch.h"
#include "base/system/file.h"
#include "base/system/re_execute.h"
#include "base/system/socket_address.h"
#include "base/utf8.h"
#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/server.h"
#include "elastic/identity/credentials.h"
#include "elastic/service/folders/output_roots.h"
#include "elastic/service/lead.h"
#include "elastic/service/listen_check.h"
#include "elastic/service/progress.h"
#include "elastic/service/reachable.h"
#include "elastic/service/service.h"
#include "elastic/store/etcd/etcd_address.h"
#include "elastic/store/store.h"

namespace heddle::elastic {
namespace {

constexpr Duration kEndWithin = std::chrono::milliseconds(1700);
constexpr Duration kLookAgain = std::chrono::milliseconds(200);
constexpr Duration kTryAgain = std::chrono::seconds(1);
// The address at which a coordinator that begins anew has listened, and listens again.
constexpr const char* kListened = "HEDDLE_COORDINATOR_LISTENED";

std::atomic<bool> asked_to_end{false};
std::atomic<bool> asked_again{false};

void NoteSignal(int /*signal*/) {
  if (asked_to_end.exchange(true)) {
    asked_again.store(true);
  }
}

// Reads the coordinator's certificate; those of other roles are no server certificates.
Result<Credentials> CoordinatorCredentials(const ServeOptions& options) {
  auto credentials = ReadCredentials(options.certificates);
  HEDDLE_RETURN_IF_ERROR(credentials.status().WithContext("--certs"));
  if (!credentials->empty() && credentials->identity.role != Role::kCoordinator) {
    return InvalidArgumentError("--certs {}: a certificate of {}, expected the coordinator's",
                                options.certificates, IdentityText(credentials->identity));
  }
  return credentials;
}

Result<Issuer> ReadIssuer(const ServeOptions& options, const Credentials& credentials) {
  Issuer issuer{.authority = {}, .life = options.certificate_life};
  if (options.authority.empty()) {
    return issuer;
  }
  if (credentials.empty()) {
    return InvalidArgumentError("--authority: certificates are of use with --certs DIR only");
  }
  auto authority = ReadAuthority(options.authority);
  HEDDLE_RETURN_IF_ERROR(authority.status().WithContext("--authority"));
  if (authority->certificate != credentials.authority) {
    return InvalidArgumentError("--authority {}: not the authority of {}", options.authority,
                                options.certificates);
  }
  issuer.authority = *std::move(authority);
  return issuer;
}

Status CheckAddresses(const ServeOptions& options,
                      const std::string& listen,
                      const Credentials& credentials) {
  if (IsEtcdAddress(options.store)) {
    HEDDLE_RETURN_IF_ERROR(ParseEtcdAddress(options.store).status());
  }
  HEDDLE_RETURN_IF_ERROR(CheckCanListen("--listen", listen));
  HEDDLE_RETURN_IF_ERROR(CheckIsGuarded("--listen", listen,
                                        options.insecure || !credentials.empty(),
                                        "give --certs DIR (heddle certs init makes one)"));
  return CheckCanListen("--metrics", HostAndPort(options.metrics_host, options.metrics_port));
}

Result<OutputRoots> RootsOf(const ServeOptions& options) {
  if (!options.output_roots.empty()) {
    return OutputRoots::Make(options.output_roots);
  }
  if (IsEtcdAddress(options.store)) {
    return InvalidArgumentError(
        "--output-root: with the state in etcd there is no folder of the coordinator's own: say "
        "below which folders jobs may write, the same ones to all coordinators");
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string folder, AbsolutePath(options.store));
  return OutputRoots::Make({folder + "/runs"});
}

// Writes job.json to a store that is a folder, where scripts find the coordinator's address.
Status WriteStoreJobFile(const std::string& folder, Service& service) {
  return WriteFileAtomically(folder + "/job.json",
                             "{\"coordinator\": \"" + ReachableAddress(service.server().address()) +
                                 "\", \"metrics\": \"" +
                                 ReachableAddress(service.metrics_address()) +
                                 "\", \"workers\": []}\n");
}

// Becomes a standby because another coordinator leads or may lead. Executes the program anew, which
// ends all threads of the former leader.
Status StandByAnew(const Status& why, const std::string& listened, Progress& progress) {
  progress.Say("leads no longer, and stands by again: " + why.message());
  return ReExecute(kListened, listened);
}

// Handles an error of a coordinator that was to lead. After an error that may pass it becomes a
// standby again, and if the disk of the job's folder is full it waits before, so that another one
// may try. Returns any other error.
Status NotStarted(const Status& why, const std::string& listened, Progress& progress) {
  const bool no_room =
      why.code() == StatusCode::kResourceExhausted;  // The port was there just now.
  if (!no_room && why.code() != StatusCode::kAborted && why.code() != StatusCode::kUnavailable) {
    return why;
  }
  for (const Time due = After(kTryAgain); no_room && Now() < due && !asked_to_end.load();) {
    // lint: allow sleep: only a signal is waited for, and no condition carries it.
    std::this_thread::sleep_until(After(kLookAgain));
  }
  return StandByAnew(why, listened, progress);
}

// Runs until the process is asked to end. Errors: kAborted (this coordinator no longer leads),
// those of the store.
Status RunService(Service& service, EndWatch& watch, Progress& progress) {
  bool reported = false;
  while (!asked_to_end.load()) {
    const auto end = service.server().WaitForEnd(After(kLookAgain));
    if (end && !reported) {
      progress.Say(end->ok ? "the job has finished" : "the job failed: " + end->reason);
    }
    reported = end.has_value();
    HEDDLE_RETURN_IF_ERROR(service.Owned());
    if (Status health = service.server().Health(); !health.ok()) {
      watch.EndWithin(kEndWithin);
      return health;
    }
    if (end) {
      // The job is over; its status stays readable until this process is asked to end.
      // lint: allow sleep: only a signal is left to wait for, and no condition carries it.
      std::this_thread::sleep_until(After(kLookAgain));
    }
  }
  return Status::Ok();
}

}  // namespace

Status Serve(const ServeOptions& options) {
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  QuietGrpc();
  EndWatch watch([] { return asked_to_end.load(); }, kEndWithin);
  const EndWatch second([] { return asked_again.load(); }, EndWatch::kSecondSignal);
  HEDDLE_ASSIGN_OR_RETURN(const Credentials credentials, CoordinatorCredentials(options));
  HEDDLE_ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(options, credentials));
  const char* const listened = std::getenv(kListened);  // NOLINT(concurrency-mt-unsafe): none sets
  std::string listen = listened == nullptr ? options.listen : listened;
  HEDDLE_RETURN_IF_ERROR(CheckAddresses(options, listen, credentials));
  const bool shared = IsEtcdAddress(options.store);
  std::string folder;
  if (!shared) {
    HEDDLE_ASSIGN_OR_RETURN(folder, AbsolutePath(options.store));
    HEDDLE_RETURN_IF_ERROR(CheckUtf8("--store", folder));
    HEDDLE_RETURN_IF_ERROR(CheckSqlitePath(folder + "/" + kStoreFile).WithContext("--store"));
  }
  HEDDLE_ASSIGN_OR_RETURN(const OutputRoots roots, RootsOf(options));
  Progress progress(0, true);
  std::unique_ptr<StateStore> store;
  if (shared) {
    HEDDLE_ASSIGN_OR_RETURN(store, WaitToLead(options.store, credentials, listen, progress,
                                              [] { return asked_to_end.load(); }));
    if (store == nullptr) {
      return Status::Ok();
    }
  } else {
    HEDDLE_ASSIGN_OR_RETURN(store, OpenSqliteStore(folder + "/" + kStoreFile));
  }
  auto service =
      Service::Start({.listen = listen,
                      .credentials = credentials,
                      .issuer = issuer,
                      .metrics_host = options.metrics_host,
                      .metrics_port = options.metrics_port,
                      .store = std::move(store),
                      .default_output = roots.FirstFolder(),
                      .output_roots = roots,
                      .observer = [&progress](const LogEvent& event) { progress.Note(event); },
                      .workers_listed = [&progress](int64_t count) { progress.SetWorkers(count); },
                      .workers_outlive = true});
  if (!service.ok()) {
    return shared ? NotStarted(service.status(), listen, progress) : service.status();
  }
  CoordinatorServer& server = (*service)->server();
  if (!shared) {
    HEDDLE_RETURN_IF_ERROR(WriteStoreJobFile(folder, **service));
  }
  progress.Say(AddressLine(server.address(), (*service)->metrics_address()) +
               (server.resumed() ? ", going on with job " + server.resumed_job_id() : ""));
  Status status = RunService(**service, watch, progress);
  if (shared && status.code() == StatusCode::kAborted) {
    status = StandByAnew(status, server.address(), progress);
    watch.EndWithin(kEndWithin);
  }
  return status;
}

}  // namespace heddle::elastic
