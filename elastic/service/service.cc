#include "elastic/service/service.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/system/file.h"
#include "base/system/socket_address.h"
#include "checkpoint/store/store.h"
#include "elastic/planning/job_planner.h"
#include "elastic/planning/profile_file.h"
#include "elastic/report/run_events.h"
#include "elastic/service/checkpoints.h"
#include "elastic/service/folders/data_apart.h"
#include "elastic/service/folders/folder_writer.h"
#include "elastic/service/folders/run_folder.h"
#include "elastic/service/job_policy.h"
#include "elastic/service/pages.h"
#include "elastic/service/reachable.h"
#include "elastic/service/service_metrics.h"
#include "elastic/store/ordered_store.h"
#include "engine/job/effects.h"
#include "metrics/exposition/exposer.h"

namespace heddle::elastic {

class Service::Impl {
 public:
  explicit Impl(ServiceOptions options)
      : options_(std::move(options)),
        metrics_(registry_),
        store_(std::move(options_.store), [this] { return SyncLog(); }),
        term_(store_.term()) {}

  Status Open() {
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<DurableState> stored, store_.Load());
    if (stored && stored->held && !stored->finished) {
      live_generation_ = stored->held->number;
    }
    HEDDLE_ASSIGN_OR_RETURN(
        exposer_, metrics::Exposer::Start(
                      registry_, {.host = options_.metrics_host, .port = options_.metrics_port},
                      CoordinatorPages(Sources())));
    {
      MutexLock lock(mutex_);
      metrics_address_ = HostAndPort(options_.metrics_host, exposer_->port());
    }
    HEDDLE_ASSIGN_OR_RETURN(auto server,
                            CoordinatorServer::Start({.listen = options_.listen,
                                                      .credentials = options_.credentials,
                                                      .issuer = options_.issuer,
                                                      .store = &store_,
                                                      .hooks = Hooks()}));
    {
      MutexLock lock(mutex_);
      server_ = std::move(server);
      WriteJobFile();
    }
    writer_.Finish();
    return Status::Ok();
  }

  // Called before the registry and the folder are destroyed, since the hooks use them.
  void Stop() {
    CoordinatorServer* server = nullptr;
    {
      MutexLock lock(mutex_);
      server = server_.get();
    }
    if (server != nullptr) {
      server->Stop();
    }
    exposer_.reset();
  }

  CoordinatorServer& server() { return *server_; }
  Status Owned() const { return store_.Owned(); }
  const std::string& metrics_address() const { return metrics_address_; }

 private:
  static void Warn(const Status& status) {
    if (!status.ok()) {
      LogWarning("{}", status.message());
    }
  }

  bool guarded() const { return !options_.credentials.empty(); }

  CoordinatorHooks Hooks() {
    return {
        .read_job = [this](const std::string& yaml, const std::string& path,
                           JobOrigin origin) { return ReadJob(yaml, path, origin); },
        .check_profile = [](const std::string& json) { return MeasurementFromJson(json).status(); },
        .plan =
            [this](const Job& job, const PlanRequest& request, const std::stop_token& stop) {
              {
                const MutexLock lock(mutex_);
                Replace("profile.json", [request] { return ProfileFileJsonOf(request); });
              }
              return planner_.Plan(job, request, stop);
            },
        .commit =
            [this](const Job& job, const CommitCheckpoint& commit) {
              const Status owned = store_.Owned();
              return owned.ok() ? CommitParts(job, commit, registry_)
                                : CheckpointCommitted{.status = owned};
            },
        .note_validation =
            [this](const Job& job, const NoteValidation& note) {
              if (!store_.Owned().ok()) {
                return std::vector<int64_t>();
              }
              auto pruned = NoteLoss(job, note);
              Warn(pruned.status());
              return pruned.ok() ? *std::move(pruned) : std::vector<int64_t>();
            },
        .abandon =
            [this](const Job& job, const AbandonCheckpoint& abandon) {
              if (!store_.Owned().ok()) {
                return;
              }
              Warn(checkpoint::Abandon(job.checkpoint_root, abandon.step, abandon.generation));
            },
        .find_checkpoints =
            [this](const Job& /*job*/) {
              MutexLock lock(mutex_);
              return checkpoints_;  // They are of the job that was read last.
            },
        .taken = [this](const Job& /*job*/) { KeepRun(); },
        .not_taken = [this](const Job& /*job*/) { LeaveRun(); },
        .log = [this](const LogEvent& event) { Log(event); },
        .read_events = [this](int64_t offset) { return ReadEvents(offset); },
        .list_workers = [this](const std::vector<ListWorkers::Entry>& workers) { List(workers); },
        .worker_gone =
            [this](const WorkerGone& gone) {
              if (options_.worker_gone) {
                options_.worker_gone(gone);
              }
            },
        .refused = [this](std::string_view reason) { metrics_.CountRefusal(reason); },
        .issued = [this](std::string_view by) { metrics_.CountIssued(by); },
        .certificate = [this](double ends) { metrics_.SetCertificateEnd(ends); },
        .ended = [this](const EndJob& /*end*/) { metrics_.SetRunning(false); }};
  }

  // The claimed folder of the coordinator's job.
  struct Run {
    std::shared_ptr<FolderClaim> claim;
    std::shared_ptr<RunFolder> folder;
  };

  // Reads a job, and claims and opens its folder, so that its events can be written.
  Result<Job> ReadJob(const std::string& yaml, const std::string& path, JobOrigin origin) {
    HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig config,
                            job::ParseJob(yaml, path.empty() ? "the job" : path));
    std::string output = options_.claim != nullptr ? options_.claim->folder() : config.output;
    if (output.empty()) {
      output = origin == JobOrigin::kStored ? FolderOf(path)
                                            : options_.default_output + "/" + config.name;
    }
    if (options_.output_roots && origin == JobOrigin::kSubmitted) {
      HEDDLE_ASSIGN_OR_RETURN(output, options_.output_roots->Check(config, output));
    }
    if (origin == JobOrigin::kSubmitted) {
      HEDDLE_RETURN_IF_ERROR(CheckDataApart(config, output));
    }
    HEDDLE_RETURN_IF_ERROR(CheckNamedCheckpoint(config, output));
    HEDDLE_RETURN_IF_ERROR(OpenRun(config, output, origin));
    Result<Job> job = FindState(config, output, origin);
    if (!job.ok()) {
      LeaveRun();
    } else if (origin == JobOrigin::kStored) {
      metrics_.SetRunning(true);
    }
    return job;
  }

  Status OpenRun(const job::JobConfig& config, const std::string& output, JobOrigin origin) {
    std::shared_ptr<FolderClaim> claim = options_.claim;
    Run present;
    {
      MutexLock lock(mutex_);
      present = run_;
    }
    std::shared_ptr<RunFolder> folder;
    if (claim == nullptr && present.claim != nullptr && present.claim->folder() == output &&
        present.claim->job_hash() == config.hash) {
      // The job before was the same one: its lines that wait in memory are to be written first.
      claim = present.claim;
      folder = present.folder;
    }
    const bool takes = claim == nullptr;
    if (takes) {
      HEDDLE_ASSIGN_OR_RETURN(claim, FolderClaim::Take({.folder = output,
                                                        .job_hash = config.hash,
                                                        .job_text = config.text,
                                                        .known = origin == JobOrigin::kStored,
                                                        .term = term_}));
    }
    // A former leader that does not know yet that it lost the lease may have the log open.
    const bool anew = origin == JobOrigin::kStored && !term_.store.empty();
    if (folder == nullptr) {
      auto opened = RunFolder::Open(output, anew ? RunFolder::Log::kAnew : RunFolder::Log::kSame);
      if (!opened.ok()) {
        if (takes) {
          claim->Undo();
        }
        return opened.status();
      }
      folder = *std::move(opened);
    }
    MutexLock lock(mutex_);
    run_before_ = std::exchange(run_, Run{std::move(claim), std::move(folder)});
    return Status::Ok();
  }

  // The job that was read last is taken: gives up the folder of the job before.
  void KeepRun() {
    const MutexLock lock(mutex_);
    run_before_ = Run();
  }

  // The job that was read last is not taken: the run before is the present one again.
  void LeaveRun() {
    MutexLock lock(mutex_);
    if (run_.claim != nullptr && run_.claim != run_before_.claim && options_.claim == nullptr) {
      run_.claim->Undo();
    }
    run_ = std::exchange(run_before_, Run());
  }

  Result<Job> FindState(const job::JobConfig& config, const std::string& output, JobOrigin origin) {
    const bool restoring = origin == JobOrigin::kStored;
    Job job = MakeJob(config, output);
    job.policy.paused_timeout = options_.paused_timeout;
    job.policy.ends_suspended = options_.ends_suspended;
    const auto live = restoring ? live_generation_ : std::nullopt;
    const auto warn = [this](const std::string& message) {
      LogWarning("{}", message);
      Log({.kind = "warning", .fields = {{"message", message}}});
    };
    std::ranges::for_each(job::StartWarnings(config), warn);
    // Read before SoundCheckpoints removes uncommitted saves, which may have the highest
    // generation.
    const auto generation = checkpoint::HighestGeneration(job.checkpoint_root);
    const bool adopts = live && options_.workers_outlive;
    auto checkpoints =
        SoundCheckpoints(job, live, adopts ? ReadNewest::kNot : ReadNewest::kWhole,
                         [&](const std::string& line) { warn("checkpoint skipped: " + line); });
    const Status found = generation.ok() ? checkpoints.status() : generation.status();
    if (!found.ok() && !(restoring && options_.workers_outlive)) {
      return found;
    }
    job.used_generation = generation.ok() ? *generation : 0;
    if (checkpoints.ok() && !checkpoints->empty()) {
      HEDDLE_RETURN_IF_ERROR(GoOnFrom(checkpoints->back(), config, /*stored=*/restoring, job));
    }
    // Workers that still hold the state train on. If they are lost, a job that began from a model
    // must not begin from the seed: it asks for the checkpoint of step 0, which is found missing.
    const std::vector<int64_t> none =
        config.init_from.empty() ? std::vector<int64_t>() : std::vector<int64_t>{0};
    MutexLock lock(mutex_);
    checkpoints_ = checkpoints.ok() ? *std::move(checkpoints) : none;
    return job;
  }

  // Thread: the store's; may take long.
  Status SyncLog() {
    std::shared_ptr<RunFolder> folder;
    {
      MutexLock lock(mutex_);
      folder = run_.folder;
    }
    return folder == nullptr ? Status::Ok() : writer_.Sync(*folder);
  }

  void Log(const LogEvent& event) {
    metrics_.Note(event);
    if (options_.observer) {
      options_.observer(event);
    }
    MutexLock lock(mutex_);
    if (run_.folder != nullptr && store_.Owned().ok()) {
      writer_.Append(Held(), event);
    }
  }

  Result<EventBytes> ReadEvents(int64_t offset) {
    Run run;
    {
      MutexLock lock(mutex_);
      run = run_;
    }
    if (run.folder == nullptr || run.claim == nullptr) {
      return FailedPreconditionError("the coordinator has no job yet");
    }
    HEDDLE_ASSIGN_OR_RETURN(std::string text, ReadEventBytes(run.folder->path(), offset));
    return EventBytes{.text = std::move(text), .job_id = run.claim->job_hash()};
  }

  void List(const std::vector<ListWorkers::Entry>& workers) {
    if (options_.workers_listed) {
      options_.workers_listed(static_cast<int64_t>(workers.size()));
    }
    MutexLock lock(mutex_);
    workers_ = workers;
    metrics_.SetWorkers(static_cast<int>(workers.size()));
    if (server_ != nullptr) {
      WriteJobFile();
    }
  }

  // The run's folder, which stays claimed until the holder has written to it.
  std::shared_ptr<RunFolder> Held() HEDDLE_REQUIRES(mutex_) {
    const auto run = std::make_shared<Run>(run_);
    return {run, run->folder.get()};
  }

  void Replace(const char* name, std::function<Result<std::string>()> text)
      HEDDLE_REQUIRES(mutex_) {
    if (run_.folder != nullptr && store_.Owned().ok()) {
      writer_.Replace(Held(), name, std::move(text));
    }
  }

  void WriteJobFile() HEDDLE_REQUIRES(mutex_) {
    const RunAddresses addresses{.coordinator = ReachableAddress(server_->address()),
                                 .metrics = ReachableAddress(metrics_address_),
                                 .guarded = guarded()};
    Replace("job.json", [text = JobFileJson(addresses, workers_)] { return text; });
  }

  PageSources Sources() {
    return {.server =
                [this] {
                  MutexLock lock(mutex_);
                  return server_.get();
                },
            .owned = [this] { return store_.Owned(); },
            .workers =
                [this] {
                  MutexLock lock(mutex_);
                  return workers_;
                },
            .metrics_address =
                [this] {
                  MutexLock lock(mutex_);
                  return metrics_address_;
                }};
  }

  ServiceOptions options_;
  metrics::Registry registry_;
  ServiceMetrics metrics_;
  JobPlanner planner_;
  FolderWriter writer_;
  OrderedStore store_;  // Its destructor may sync through `writer_`.
  const StoreTerm term_;
  std::string metrics_address_;
  std::optional<int64_t> live_generation_;  ///< The stored generation, whose workers may still run.

  Mutex mutex_;
  Run run_ HEDDLE_GUARDED_BY(mutex_);
  Run run_before_ HEDDLE_GUARDED_BY(mutex_);  ///< The run before, until the next job is taken.
  std::vector<ListWorkers::Entry> workers_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<int64_t> checkpoints_ HEDDLE_GUARDED_BY(mutex_);  ///< To resume from.

  std::unique_ptr<metrics::Exposer> exposer_;
  std::unique_ptr<CoordinatorServer>
      server_;  // Set once, under mutex_; last: its threads call what is above.
};

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() {
  impl_->Stop();
}

Result<std::unique_ptr<Service>> Service::Start(ServiceOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  HEDDLE_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

CoordinatorServer& Service::server() {
  return impl_->server();
}
Status Service::Owned() const {
  return impl_->Owned();
}
const std::string& Service::metrics_address() const {
  return impl_->metrics_address();
}

}  // namespace heddle::elastic
