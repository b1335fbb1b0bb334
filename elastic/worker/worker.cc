#include "elastic/worker/worker.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/log.h"
#include "base/system/end_watch.h"
#include "base/system/host.h"
#include "base/system/re_execute.h"
#include "base/system/socket_address.h"
#include "comm/links/discovery.h"
#include "elastic/grpc/enrolment.h"
#include "elastic/identity/credentials.h"
#include "elastic/launcher/rank_name.h"
#include "elastic/protocol/coordinator_route.h"
#include "elastic/protocol/exit_code.h"
#include "elastic/service/job_policy.h"
#include "elastic/service/pages.h"
#include "elastic/worker/figures/figures.h"
#include "elastic/worker/restart_wait.h"
#include "elastic/worker/worker_host.h"
#include "engine/runtime/device/arithmetic.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/device/device.h"
#include "metrics/exposition/exposer.h"

namespace heddle::elastic {
namespace {

std::atomic<int> terminate_signals{0};

void NoteSignal(int /*signal*/) {
  terminate_signals.fetch_add(1);
}

// Draws 16 random bytes, which identify this process whatever its name or address is.
std::string DrawIncarnation() {
  std::random_device device;
  std::string bytes;
  while (bytes.size() < 16) {
    const unsigned int word = device();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return bytes;
}

Status Join(const WorkerOptions& options) {
  if (options.certificates.empty() || options.name.empty()) {
    return InvalidArgumentError(
        "--join-token-file: give --name NAME, which the certificate is made for, and --certs DIR: "
        "it is kept in DIR/NAME");
  }
  return JoinByToken({.coordinator = options.coordinator,
                      .token_file = options.join_token_file,
                      .name = options.name,
                      .folder = options.certificates + "/" + options.name,
                      .asked_to_end = [] { return terminate_signals.load() > 0; }});
}

// Finds the worker's certificate; it decides the name if none was given.
Status FindCertificate(WorkerOptions& options) {
  if (!options.join_token_file.empty()) {
    HEDDLE_RETURN_IF_ERROR(Join(options));
  }
  options.certificates = WorkerFolder(options.certificates, options.name);
  const auto credentials = ReadCredentials(options.certificates);
  HEDDLE_RETURN_IF_ERROR(credentials.status().WithContext("--certs"));
  if (credentials->empty()) {
    return Status::Ok();
  }
  const Identity& identity = credentials->identity;
  if (identity.role != Role::kWorker || (!options.name.empty() && identity.name != options.name)) {
    return InvalidArgumentError("--certs {}: a certificate of {}, expected one of worker/{}",
                                options.certificates, IdentityText(identity),
                                options.name.empty() ? "NAME" : options.name);
  }
  options.name = identity.name;
  return Status::Ok();
}

// Completes the options with what the launcher and the machine say.
Result<WorkerOptions> Completed(WorkerOptions options) {
  const std::optional<Launched> launched = FindLauncher();
  HEDDLE_ASSIGN_OR_RETURN(options.name, NameOfRank(options.name, launched));
  HEDDLE_RETURN_IF_ERROR(FindCertificate(options));
  HEDDLE_ASSIGN_OR_RETURN(
      options.bind_host,
      comm::FindBindAddress(options.bind_host, CoordinatorRoute(options.coordinator).current()));
  if (launched) {
    LogInfo("started by {} rank={} size={} bind={}", launched->launcher, launched->rank,
            launched->size, options.bind_host);
  }
  return options;
}

// As WorkerHostOptions::local_rank.
int LocalRank() {
  const std::optional<Launched> launched = FindLauncher();
  return launched ? launched->local_rank : 0;
}

// True for errors of the user's input, which would come again at the next start.
bool IsBadInput(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotFound ||
         status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kUnauthenticated ||
         status.code() == StatusCode::kFailedPrecondition;
}

// What a worker with this device computes on; the processor's if the job names it.
Result<runtime::Arithmetic> ArithmeticOf(const std::string& device) {
  if (device.empty()) {
    return runtime::CpuArithmetic();
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto opened, runtime::OpenDevice(device, {}));
  return opened->arithmetic();
}

// Starts the renewal of the certificate; null if there is none or it cannot be renewed.
std::unique_ptr<Renewal> StartRenewal(const WorkerOptions& options,
                                      CoordinatorSession& session,
                                      metrics::Registry& registry) {
  if (options.certificates.empty()) {
    return nullptr;
  }
  auto renewal = Renewal::Start({.coordinator = options.coordinator,
                                 .folder = options.certificates,
                                 .renewed = [&session] { session.Refresh(); },
                                 .ends =
                                     [&registry](double ends) {
                                       registry
                                           .GetGauge("heddle_certificate_expires_timestamp_seconds",
                                                     "When this process' certificate ends.")
                                           .Set(ends);
                                     }});
  if (!renewal.ok()) {
    LogWarning("the certificate is not renewed: {}", renewal.status().message());
    return nullptr;
  }
  return *std::move(renewal);
}

// The pages for probes: the process is alive; it takes part in training.
std::map<std::string, metrics::HttpHandler> ProbePages(metrics::Registry& registry) {
  return {{"/healthz", [](const metrics::PageRequest&) { return HealthReply({}); }},
          {"/readyz", [&registry](const metrics::PageRequest&) {
             return HealthReply(ShowsSteps(registry)
                                    ? Status::Ok()
                                    : UnavailableError("no step of a generation yet"));
           }}};
}

// Interval of polls for signals: workers that are signalled together report it within this time,
// and the coordinator sees that all of them leave.
constexpr Duration kSignalLook = std::chrono::milliseconds(20);

ExitWorker RunUntilExit(WorkerHost& host, MemberLoop& loop) {
  int answered = 0;
  while (true) {
    if (const auto exit = host.WaitForExit(After(kSignalLook))) {
      return *exit;
    }
    if (host.TakeStay()) {
      terminate_signals.fetch_sub(std::exchange(answered, 0));
    }
    const int signals = terminate_signals.load();
    if (signals > answered) {
      if (signals > 1) {
        LogWarning("second signal: exit without handing the state over");
        return {.code = 1, .reason = "second signal"};
      }
      loop.Post(TerminateRequested{.reason = "asked to terminate"});
      answered = signals;
    }
  }
}

// Bound of the end of the threads, one of which may be in a long step or wait for storage that does
// not answer.
constexpr Duration kEndWithin = std::chrono::seconds(5);

// Environment variable with the text of the last RestartWait, over all runs of this process.
constexpr const char* kBegun = "HEDDLE_WORKER_BEGUN";

// Executes the program anew for a job that gave this worker up and would take it again. Threads may
// still run parts of the old generation, so that only a new run of the program is sure to hold no
// state. Waits longer each time (NextRestartWait).
int BeginWorkerAnew() {
  const char* const text = std::getenv(kBegun);  // NOLINT(concurrency-mt-unsafe): no thread sets it
  const RestartWait wait =
      NextRestartWait(text == nullptr ? "" : text, Seconds(Now().time_since_epoch()));
  LogInfo("begins anew in {} s", wait.seconds);
  for (const Time due = After(FromSeconds(wait.seconds)); Now() < due;) {
    if (terminate_signals.load() > 0) {
      return kExitRequeue;  // The job would have taken the worker again.
    }
    // lint: allow sleep: only a signal is waited for, and no condition carries it.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  LogError("{}", ReExecute(kBegun, wait.text).message());
  return 1;
}

}  // namespace

int RunWorker(const WorkerOptions& asked) {
  ConfigureLog(LogLevel::kInfo, "worker");
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGPIPE, SIG_IGN);
  // A first signal lets the worker hand its state over.
  EndWatch watch([] { return terminate_signals.load() > 1; }, EndWatch::kSecondSignal);
  const Result<WorkerOptions> completed = Completed(asked);
  if (!completed.ok()) {
    LogError("{}", completed.status().message());
    return IsBadInput(completed.status()) ? 2 : 1;
  }
  const WorkerOptions& options = *completed;
  ConfigureLog(LogLevel::kInfo, options.name.empty() ? "worker" : options.name);
  RaiseDescriptorLimit();
  runtime::WarnAboutBlas();
  runtime::KeepFreedMemory();

  metrics::Registry registry;
  auto exposer = metrics::Exposer::Start(registry, {.host = options.bind_host, .port = 0},
                                         ProbePages(registry));
  if (!exposer.ok()) {
    LogError("metrics: {}", exposer.status().message());
    return 1;
  }
  const comm::EndpointOptions endpoint_options{.config = {.worker = options.name},
                                               .bind_host = options.bind_host,
                                               .transport_options = options.transport_options,
                                               .metrics = &registry};
  auto endpoint = comm::Endpoint::Create(endpoint_options);
  if (!endpoint.ok()) {
    LogError("data endpoint: {}", endpoint.status().message());
    return 1;
  }
  auto probe = PairProbe::Create(endpoint_options);
  if (!probe.ok()) {
    // The job is planned without measurements of this worker's links.
    LogWarning("the links of this worker are not measured: {}", probe.status().message());
  }
  const Result<runtime::Arithmetic> arithmetic = ArithmeticOf(options.device);
  if (!arithmetic.ok()) {
    LogError("{}", arithmetic.status().message());
    return IsBadInput(arithmetic.status()) ? 2 : 1;
  }
  const MemberIdentity identity{
      .name = options.name,
      .incarnation = DrawIncarnation(),
      .host = HostIdentity(),
      .pid = getpid(),
      .data_address = (*endpoint)->address(),
      .metrics_address = options.bind_host + ":" + std::to_string((*exposer)->port()),
      .network = options.bind_host,
      .probe_address = probe.ok() ? (*probe)->address() : "",
      .failure_domain = options.failure_domain,
      .emulation = options.emulated ? WireEmulation(options.emulation) : wire::Emulation(),
      .arithmetic = *arithmetic,
      .device_of_job = options.device.empty()};
  ExitWorker exit;
  {
    WorkerHost host({.endpoint_options = endpoint_options,
                     .endpoint = endpoint->get(),
                     .probe = probe.ok() ? probe->get() : nullptr,
                     .registry = &registry,
                     .device = options.device,
                     .local_rank = LocalRank()});
    MemberLoop loop(Member(identity, MemberOptions{}, Now()), host);
    CoordinatorSession session(
        {.coordinator = options.coordinator,
         .certificates = options.certificates,
         .seed = static_cast<uint64_t>(getpid()),
         .up = [&loop] { loop.Post(StreamUp{}); },
         .down = [&loop](const std::string& reason) { loop.Post(StreamDown{.reason = reason}); },
         .received =
             [&loop](const wire::ToWorker& message) {
               loop.Post(FromCoordinator{.message = message});
             }});
    host.Attach(&session, &loop);
    std::unique_ptr<Renewal> renewal = StartRenewal(options, session, registry);
    exit = RunUntilExit(host, loop);
    renewal.reset();
    if (exit.begins_anew) {
      session.Close(After(std::chrono::seconds(2)));
      (*endpoint)->Fence(std::numeric_limits<int64_t>::max());
      std::_Exit(BeginWorkerAnew());
    }
    watch.EndWithin(kEndWithin, exit.code);
    session.Close(After(std::chrono::seconds(2)));
    host.StopThreads();
    loop.Stop();
  }
  return exit.code;
}

}  // namespace heddle::elastic
