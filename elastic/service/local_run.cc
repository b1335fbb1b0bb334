#include "elastic/service/local_run.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>

#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/system/end_watch.h"
#include "base/system/file.h"
#include "base/system/launched.h"
#include "base/system/socket_address.h"
#include "base/utf8.h"
#include "elastic/launcher/launcher.h"
#include "elastic/protocol/exit_code.h"
#include "elastic/service/checkpoints.h"
#include "elastic/service/folders/data_apart.h"
#include "elastic/service/folders/run_folder.h"
#include "elastic/service/listen_check.h"
#include "elastic/service/progress.h"
#include "elastic/service/reachable.h"
#include "elastic/service/restarts.h"
#include "elastic/service/service.h"
#include "elastic/store/store.h"
#include "engine/data/dataset.h"
#include "engine/job/devices.h"
#include "engine/job/job.h"
#include "planner/teams/team_search.h"

namespace heddle::elastic {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<bool> noticed{false};
std::atomic<int> signals{0};

void NoteInterrupt(int /*signal*/) {
  signals.fetch_add(1);
  interrupted.store(true);
}

// A second SIGTERM ends the job at once.
void NoteTerminate(int /*signal*/) {
  signals.fetch_add(1);
  if (noticed.exchange(true)) {
    interrupted.store(true);
  }
}

// Bounds after an interrupt, in which workers finish the step that they are in.
constexpr Duration kWorkersEndWithin = std::chrono::seconds(5);
constexpr Duration kInterruptedEndWithin = std::chrono::seconds(8);
// Bound of the end when it cannot be stored, so that no worker hears of it.
constexpr Duration kEndWithin = std::chrono::seconds(1);

// How long a paused job waits for workers: those of `train` join at once, by a restart, or are
// started by hand from another terminal.
constexpr Duration kPausedTimeout = std::chrono::seconds(20);

// If the job caps every worker's memory, checks that the model fits at all, before anything is
// started or written: the planner needs only the caps and, as nothing is measured yet, any speed.
Status CheckFits(const job::JobConfig& job) {
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  planner::SearchRequest request;
  request.graph = &graph;
  request.microbatches = static_cast<int>(job.batch.microbatches());
  request.determinism = job.determinism;
  request.divides_optimizer = job.parallel.divides_optimizer;
  request.divides_sequence = job.parallel.divides_sequence;
  request.cluster.links = comm::LinkTable(static_cast<int>(job.workers.size()));
  for (const job::WorkerSection& worker : job.workers) {
    if (worker.emulation.memory_bytes == 0) {
      return Status::Ok();
    }
    program::WorkerProfile profile;
    profile.worker = worker.name;
    profile.flops_per_second = 1e10 * worker.emulation.speed;
    profile.bytes_per_second = 1e9 * worker.emulation.speed;
    profile.memory_bytes = worker.emulation.memory_bytes;
    request.cluster.workers.push_back(std::move(profile));
  }
  return planner::SearchSizes(request, job.parallel.sizes()).status();
}

// Checks that the folder can hold the run and its coordinator's store.
Status CheckFolder(const job::JobConfig& job, const std::string& folder) {
  HEDDLE_RETURN_IF_ERROR(CheckUtf8("output folder", folder));
  HEDDLE_RETURN_IF_ERROR(CheckSqlitePath(folder + "/" + kStoreFile));
  return CheckDataApart(job, folder);
}

// Checks that the job can begin from the checkpoint that it names, and that the folder's
// checkpoints were trained on these data.
Status CheckState(const job::JobConfig& job, const std::string& folder, uint64_t data) {
  HEDDLE_RETURN_IF_ERROR(CheckNamedCheckpoint(job, folder));
  return CheckTrainedOn(data, job, job.checkpoint.RootIn(folder));
}

Status CheckAddresses(const LocalRunOptions& options, const job::JobConfig& job) {
  HEDDLE_RETURN_IF_ERROR(CheckCanListen("--listen", options.listen));
  HEDDLE_RETURN_IF_ERROR(
      CheckIsGuarded("--listen", options.listen, options.insecure,
                     "use heddle serve --certs DIR (heddle certs init makes one)"));
  return CheckCanListen("metrics.port", fmt::format("127.0.0.1:{}", job.metrics.port));
}

// The last line of a log that is not blank; empty if there is none.
std::string LastLine(const std::string& path) {
  const Result<std::string> text = ReadFile(path, int64_t{1} << 20);
  const size_t end = text.ok() ? text->find_last_not_of(" \n") : std::string::npos;
  if (end == std::string::npos) {
    return "";
  }
  const size_t begin = text->rfind('\n', end) + 1;  // npos + 1: the first line.
  return text->substr(begin, end + 1 - begin);
}

// Starts the job's workers, and starts lost ones again if the job says so.
class Workers {
 public:
  // `devices`: what each computes on, by name.
  Workers(const LocalRunOptions& options,
          const job::JobConfig& job,
          std::map<std::string, std::string> devices,
          std::string folder)
      : options_(options),
        job_(job),
        devices_(std::move(devices)),
        folder_(std::move(folder)) {}

  Status Start(Service& service) {
    HEDDLE_ASSIGN_OR_RETURN(
        launcher_,
        MakeLocalLauncher(
            {.die_with_parent = true, .on_exit = [this, &service](const ExitReport& exit) {
               const bool last = NoteExit(exit);
               service.server().ReportExit({exit.name, exit.pid, ReasonOf(exit), last});
             }}));
    {
      MutexLock lock(mutex_);
      to_come_ = job_.workers.size();
    }
    for (const job::WorkerSection& worker : job_.workers) {
      HEDDLE_RETURN_IF_ERROR(Launch(service, worker.name));
    }
    return Status::Ok();
  }

  // Starts the workers again whose restart is due, unless the job is to end.
  void StartDue(Service& service) {
    std::vector<std::string> due;
    {
      MutexLock lock(mutex_);
      due = restarts_.TakeDue(Now());
    }
    for (const std::string& name : due) {
      const bool ends = noticed.load() || interrupted.load();
      const Status status = ends ? Status::Ok() : Launch(service, name);
      if (!status.ok()) {
        LogWarning("worker {} could not be started, and will be tried again: {}", name,
                   status.message());
        MutexLock lock(mutex_);
        restarts_.Ended(name, Now());
      }
    }
  }

  // When StartDue is to be called next, `longest` from now at the latest.
  Deadline NextDue(Duration longest) {
    MutexLock lock(mutex_);
    return std::min(After(longest), restarts_.NextDue().value_or(Time::max()));
  }

  // Kills a lost worker that still runs (hung, stopped, cut off) if the job restarts workers, since
  // another one takes its place. Otherwise it may come back by itself.
  void End(const WorkerGone& gone) {
    if (!job_.elastic.restart) {
      return;
    }
    MutexLock lock(mutex_);
    const auto found = pids_.find(gone.worker);
    if (found != pids_.end() && found->second == gone.pid) {
      launcher_->Signal(gone.pid, SIGKILL).IgnoreError("it has ended already");
    }
  }

  // After the job's end: waits for the workers and kills those that still run after `bound`.
  void Stop(Duration bound) {
    if (launcher_ != nullptr && !launcher_->WaitAll(After(bound)).ok()) {
      MutexLock lock(mutex_);
      for (const auto& [name, pid] : pids_) {
        launcher_->Signal(pid, SIGKILL).IgnoreError("it has ended already");
      }
    }
    launcher_.reset();
  }

 private:
  // Thread: the main one. The launcher's own thread, which reports exits, does the launching.
  Status Launch(Service& service, const std::string& name) {
    LaunchSpec spec{.name = name,
                    .argv = {options_.program, "worker", "--coordinator",
                             ReachableAddress(service.server().address()), "--name", name,
                             "--device", devices_.at(name)},
                    .log_path = LogPath(name),
                    .environment = {}};
    for (const char* variable : RankVariables()) {
      spec.environment.emplace_back(variable, "");
    }
    {
      MutexLock lock(mutex_);  // Noted first: the exit may be reported before Launch returns.
      restarts_.Started(name, Now());
    }
    HEDDLE_ASSIGN_OR_RETURN(const int64_t pid, launcher_->Launch(spec));
    MutexLock lock(mutex_);
    pids_[name] = pid;
    return Status::Ok();
  }

  std::string LogPath(const std::string& name) const { return folder_ + "/logs/" + name + ".log"; }

  // Why a process ended. A worker that reached the coordinator has told it more; of one that never
  // did, this is all that is known.
  std::string ReasonOf(const ExitReport& exit) const {
    const bool failed = exit.signal == 0 && exit.code != 0 && exit.code != kExitRequeue;
    const std::string line = failed ? LastLine(LogPath(exit.name)) : "";
    return line.empty() ? exit.reason : exit.reason + ", last line of its log: " + line;
  }

  // Plans the restart of a worker that ended. True if no worker runs or will be started again.
  // Thread: the launcher's.
  bool NoteExit(const ExitReport& exit) {
    MutexLock lock(mutex_);
    // Code 2: the job does not fit this machine, and the worker would leave again.
    if (!job_.elastic.restart || exit.code == 0 || exit.code == 2 || exit.code == kExitRequeue) {
      return --to_come_ == 0;
    }
    restarts_.Ended(exit.name, Now());
    return false;
  }

  const LocalRunOptions& options_;
  const job::JobConfig& job_;
  const std::map<std::string, std::string> devices_;
  const std::string folder_;
  std::unique_ptr<Launcher> launcher_;
  Mutex mutex_;
  std::map<std::string, int64_t> pids_ HEDDLE_GUARDED_BY(mutex_);
  Restarts restarts_ HEDDLE_GUARDED_BY(mutex_);
  size_t to_come_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Workers that run or will be started again.
};

EndJob WaitForEnd(Service& service, Workers& workers, EndWatch& watch, Duration notice) {
  bool suspends = false;
  bool cancelled = false;
  while (true) {
    if (const auto end =
            service.server().WaitForEnd(workers.NextDue(std::chrono::milliseconds(200)))) {
      return *end;
    }
    workers.StartDue(service);
    if (noticed.load() && !suspends) {
      service.server().Suspend("asked to terminate");
      watch.EndWithin(notice + kInterruptedEndWithin);
      suspends = true;
    }
    if (interrupted.load() && !cancelled) {
      service.server().Cancel("interrupted by the user");
      cancelled = true;
    }
    if (const std::string stall = cancelled ? service.server().Stall() : ""; !stall.empty()) {
      // Workers are not told of the end before it is stored; these end with this process.
      watch.EndWithin(kEndWithin);
      return {.ok = false, .reason = "interrupted by the user; its end is not stored: " + stall};
    }
  }
}

std::string OutputOf(const LocalRunOptions& options, const job::JobConfig& job) {
  if (!options.output.empty()) {
    return options.output;
  }
  return job.output.empty() ? "runs/" + job.name : job.output;
}

}  // namespace

Result<RunEnd> RunLocally(const LocalRunOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig job,
                          job::LoadJob(options.job_path, options.overrides));
  // The data is opened here once, so that what is wrong with it is one line and not one a worker.
  const auto dataset = data::Dataset::Open(job::DatasetOptions(job));
  if (!dataset.ok()) {
    return InvalidArgumentError("{}: data: {}", options.job_path, dataset.status().message());
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string folder, AbsolutePath(OutputOf(options, job)));
  HEDDLE_RETURN_IF_ERROR(CheckFolder(job, folder));
  HEDDLE_RETURN_IF_ERROR(CheckFits(job).WithContext("{}", options.job_path));
  // Found before anything begins, so that what is wrong with one is one line and not one a worker.
  auto devices = job::DevicesHere(job);
  HEDDLE_RETURN_IF_ERROR(devices.status().WithContext("{}", options.job_path));
  HEDDLE_RETURN_IF_ERROR(CheckAddresses(options, job));
  HEDDLE_RETURN_IF_ERROR(CheckState(job, folder, (*dataset)->fingerprint()));
  HEDDLE_ASSIGN_OR_RETURN(
      const std::shared_ptr<FolderClaim> claim,
      FolderClaim::Take({.folder = folder, .job_hash = job.hash, .job_text = job.text}));
  HEDDLE_RETURN_IF_ERROR(MakeFolders(folder + "/logs"));
  std::signal(SIGINT, NoteInterrupt);
  std::signal(SIGTERM, NoteTerminate);
  std::signal(SIGPIPE, SIG_IGN);

  RaiseDescriptorLimit();
  EndWatch watch([] { return interrupted.load(); }, kInterruptedEndWithin);
  const EndWatch second([] { return signals.load() > 1; }, EndWatch::kSecondSignal);
  Progress progress(job.steps, options.progress);
  Workers workers(options, job, *std::move(devices), folder);
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store,
                          OpenSqliteStore(folder + "/" + kStoreFile));
  HEDDLE_ASSIGN_OR_RETURN(
      const auto service,
      Service::Start({.listen = options.listen,
                      .metrics_port = static_cast<int>(job.metrics.port),
                      .store = std::move(store),
                      .claim = claim,
                      .observer = [&progress](const LogEvent& event) { progress.Note(event); },
                      .workers_listed = [&progress](int64_t count) { progress.SetWorkers(count); },
                      .paused_timeout = kPausedTimeout,
                      .ends_suspended = true,
                      .worker_gone = [&workers](const WorkerGone& gone) { workers.End(gone); }}));
  if (!service->server().resumed()) {
    HEDDLE_RETURN_IF_ERROR(service->server().Submit(job.text, options.job_path));
  }
  progress.Say(AddressLine(service->server().address(), service->metrics_address()) + ", output " +
               folder);
  Status started = workers.Start(*service);
  const EndJob end = started.ok() ? WaitForEnd(*service, workers, watch, job.elastic.notice)
                                  : EndJob{.ok = false, .reason = started.message()};
  workers.Stop(service->server().Stall().empty() ? kWorkersEndWithin : Duration::zero());
  progress.Finish();
  if (end.suspended) {
    return RunEnd{.suspended = true, .reason = end.reason};
  }
  if (!end.ok) {
    return end.bad_input ? InvalidArgumentError("the run failed: {}", end.reason)
                         : UnavailableError("the run failed: {}", end.reason);
  }
  return RunEnd();
}

}  // namespace heddle::elastic
