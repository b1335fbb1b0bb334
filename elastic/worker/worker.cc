#include "elastic/worker/worker.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>

#include <unistd.h>

#include "base/log.h"
#include "base/system/begin_anew.h"
#include "base/system/host.h"
#include "base/system/socket_address.h"
#include "comm/links/discovery.h"
#include "elastic/launcher/rank_name.h"
#include "elastic/service/job_policy.h"
#include "elastic/worker/begun.h"
#include "elastic/worker/worker_host.h"
#include "engine/runtime/device/blas.h"
#include "metrics/exposition/exposer.h"

namespace heddle::elastic {
namespace {

std::atomic<int> terminate_signals{0};

void NoteSignal(int /*signal*/) {
  terminate_signals.fetch_add(1);
}

// 16 random bytes: who this process is, whatever its name or address.
std::string DrawIncarnation() {
  std::random_device device;
  std::string bytes;
  while (bytes.size() < 16) {
    const unsigned int word = device();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return bytes;
}

// What the launcher and the machine add to what was asked for.
Result<WorkerOptions> Completed(WorkerOptions options) {
  const std::optional<Launched> launched = FindLauncher();
  HEDDLE_ASSIGN_OR_RETURN(options.name, NameOfRank(options.name, launched));
  HEDDLE_ASSIGN_OR_RETURN(options.bind_host,
                          comm::FindBindAddress(options.bind_host, options.coordinator));
  if (launched) {
    LogInfo("started by {} rank={} size={} bind={}", launched->launcher, launched->rank,
            launched->size, options.bind_host);
  }
  return options;
}

ExitWorker RunUntilExit(WorkerHost& host, MemberLoop& loop) {
  int answered = 0;
  while (true) {
    if (const auto exit = host.WaitForExit(After(std::chrono::milliseconds(100)))) {
      return *exit;
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

// How often this process has begun anew, and when it did last, over all its runs.
constexpr const char* kBegun = "HEDDLE_WORKER_BEGUN";

// The job gave this worker up and would take it again. What it was part of may still run in its
// threads, so that only a new run of the program is sure to hold nothing. One that is given up
// again and again waits longer each time.
int BeginWorkerAnew() {
  const char* const text = std::getenv(kBegun);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  const Begun begun = NextBegin(text == nullptr ? "" : text, WallClockSeconds());
  LogInfo("begins anew in {} s", begun.wait_seconds);
  for (const Time due = After(FromSeconds(begun.wait_seconds)); Now() < due;) {
    if (terminate_signals.load() > 0) {
      return 0;
    }
    // lint: allow sleep: only a signal is waited for, and no condition carries it.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  LogError("{}", BeginAnew(kBegun, begun.text).message());
  return 1;
}

}  // namespace

int RunWorker(const WorkerOptions& asked) {
  ConfigureLog(LogLevel::kInfo, "worker");
  const Result<WorkerOptions> completed = Completed(asked);
  if (!completed.ok()) {
    LogError("{}", completed.status().message());
    return completed.status().code() == StatusCode::kInvalidArgument ? 2 : 1;
  }
  const WorkerOptions& options = *completed;
  ConfigureLog(LogLevel::kInfo, options.name.empty() ? "worker" : options.name);
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  runtime::WarnAboutBlas();
  runtime::KeepFreedMemory();

  metrics::Registry registry;
  auto exposer = metrics::Exposer::Start(registry, {.host = options.bind_host, .port = 0});
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
      .emulation = options.emulated ? WireEmulation(options.emulation) : wire::Emulation()};
  ExitWorker exit;
  {
    WorkerHost host({.endpoint_options = endpoint_options,
                     .endpoint = endpoint->get(),
                     .probe = probe.ok() ? probe->get() : nullptr,
                     .registry = &registry});
    MemberLoop loop(Member(identity, MemberOptions{}, Now()), host);
    CoordinatorSession session(
        {.coordinator = options.coordinator,
         .seed = static_cast<uint64_t>(getpid()),
         .up = [&loop] { loop.Post(StreamUp{}); },
         .down = [&loop](const std::string& reason) { loop.Post(StreamDown{.reason = reason}); },
         .received =
             [&loop](const wire::ToWorker& message) {
               loop.Post(FromCoordinator{.message = message});
             }});
    host.Attach(&session, &loop);
    exit = RunUntilExit(host, loop);
    if (exit.begins_anew) {
      session.Close(After(std::chrono::seconds(2)));
      (*endpoint)->Fence(std::numeric_limits<int64_t>::max());
      std::_Exit(BeginWorkerAnew());
    }
    session.Close(After(std::chrono::seconds(2)));
    host.StopThreads();
    loop.Stop();
  }
  return exit.code;
}

}  // namespace heddle::elastic
