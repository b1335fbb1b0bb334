#include "elastic/service/service.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/system/file.h"
#include "checkpoint/store/store.h"
#include "elastic/grpc/client.h"
#include "elastic/service/checkpoints.h"
#include "elastic/service/job_planner.h"
#include "elastic/service/job_policy.h"
#include "elastic/service/measurement.h"
#include "elastic/service/run_folder.h"
#include "elastic/service/service_metrics.h"
#include "elastic/store/ordered_store.h"
#include "metrics/dashboard/status_page.h"
#include "metrics/exposition/exposer.h"
#include "metrics/service_discovery.h"

namespace heddle::elastic {

class Service::Impl {
 public:
  explicit Impl(ServiceOptions options) : options_(std::move(options)), metrics_(registry_) {}

  Status Open() {
    HEDDLE_ASSIGN_OR_RETURN(auto sqlite, OpenSqliteStore(options_.store_path));
    store_ = std::make_unique<OrderedStore>(std::move(sqlite), [this] { return SyncLog(); });
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<DurableState> stored, store_->Load());
    if (stored && stored->held && !stored->finished) {
      live_generation_ = stored->held->number;
    }
    HEDDLE_ASSIGN_OR_RETURN(
        exposer_, metrics::Exposer::Start(
                      registry_, {.host = options_.metrics_host, .port = options_.metrics_port},
                      {{"/", [](const std::string&) { return Page(); }},
                       {"/status", [this](const std::string&) { return StatusJson(); }},
                       {"/sd", [this](const std::string&) { return Targets(); }}}));
    metrics_address_ = options_.metrics_host + ":" + std::to_string(exposer_->port());
    HEDDLE_ASSIGN_OR_RETURN(
        auto server, CoordinatorServer::Start(
                         {.listen = options_.listen, .store = store_.get(), .hooks = Hooks()}));
    {
      MutexLock lock(mutex_);
      server_ = std::move(server);
      if (run_.folder != nullptr) {
        run_.folder->SetAddresses(server_->address(), metrics_address_);
        Warn(run_.folder->WriteJobFile(workers_));
      }
    }
    return Status::Ok();
  }

  // Before the registry and the folder go: the hooks use them.
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
  const std::string& metrics_address() const { return metrics_address_; }

 private:
  static void Warn(const Status& status) {
    if (!status.ok()) {
      LogWarning("{}", status.message());
    }
  }

  CoordinatorHooks Hooks() {
    return {
        .read_job = [this](const std::string& yaml,
                           const std::string& path) { return ReadJob(yaml, path); },
        .check_profile = [](const std::string& json) { return MeasurementFromJson(json).status(); },
        .plan = [this](const Job& job,
                       const PlanRequest& request) { return planner_.Plan(job, request); },
        .commit =
            [this](const Job& job, const CommitCheckpoint& commit) {
              return CommitParts(job, commit, registry_);
            },
        .note_validation =
            [](const Job& job, const NoteValidation& note) {
              auto pruned = NoteLoss(job, note);
              Warn(pruned.status());
              return pruned.ok() ? *std::move(pruned) : std::vector<int64_t>();
            },
        .abandon =
            [](const Job& job, const AbandonCheckpoint& abandon) {
              Warn(checkpoint::Abandon(job.checkpoint_root, abandon.step, abandon.generation));
            },
        .find_checkpoints =
            [this](const Job& /*job*/) {
              MutexLock lock(mutex_);
              return checkpoints_;  // Those of the job that was read last.
            },
        .taken = [this](const Job& /*job*/) { KeepRun(); },
        .not_taken = [this](const Job& /*job*/) { LeaveRun(); },
        .log = [this](const LogEvent& event) { Log(event); },
        .list_workers = [this](const std::vector<ListWorkers::Entry>& workers) { List(workers); },
        .worker_gone =
            [this](const WorkerGone& gone) {
              if (options_.worker_gone) {
                options_.worker_gone(gone);
              }
            },
        .ended = [](const EndJob&) {}};
  }

  // What a job's events and checkpoints need, while it is the coordinator's.
  struct Run {
    std::shared_ptr<FolderClaim> claim;
    std::shared_ptr<RunFolder> folder;
  };

  // Reads a job, claims and opens its folder: from then on its events have a place.
  Result<Job> ReadJob(const std::string& yaml, const std::string& path) {
    HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig config,
                            job::ParseJob(yaml, path.empty() ? "the job" : path));
    std::string output = options_.claim != nullptr ? options_.claim->folder() : config.output;
    if (output.empty()) {
      output = options_.default_output + "/" + config.name;
    }
    HEDDLE_RETURN_IF_ERROR(CheckNamedCheckpoint(config, output));
    HEDDLE_RETURN_IF_ERROR(OpenRun(config, output));
    Result<Job> job = FindState(config, output);
    if (!job.ok()) {
      LeaveRun();
    }
    return job;
  }

  Status OpenRun(const job::JobConfig& config, const std::string& output) {
    std::shared_ptr<FolderClaim> claim = options_.claim;
    std::shared_ptr<FolderClaim> present;
    bool restoring = false;
    {
      MutexLock lock(mutex_);
      restoring = server_ == nullptr;
      present = run_.claim;
    }
    if (claim == nullptr && present != nullptr && present->folder() == output &&
        present->job_hash() == config.hash) {
      claim = present;  // The job before was this one.
    }
    const bool takes = claim == nullptr;
    if (takes) {
      HEDDLE_ASSIGN_OR_RETURN(claim,
                              FolderClaim::Take(output, config.hash, config.text, restoring));
    }
    auto folder = RunFolder::Open(output);
    if (!folder.ok()) {
      if (takes) {
        claim->Undo();
      }
      return folder.status();
    }
    MutexLock lock(mutex_);
    run_before_ = std::exchange(run_, Run{std::move(claim), *std::move(folder)});
    run_.folder->SetAddresses(server_ == nullptr ? "" : server_->address(), metrics_address_);
    return Status::Ok();
  }

  // The job that was read last is taken: the folder of the one before is others' to use.
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

  Result<Job> FindState(const job::JobConfig& config, const std::string& output) {
    bool restoring = false;  // Of a predecessor's job, before this coordinator answers.
    {
      MutexLock lock(mutex_);
      restoring = server_ == nullptr;
    }
    Job job = MakeJob(config, output);
    job.policy.paused_timeout = options_.paused_timeout;
    const auto live = restoring ? live_generation_ : std::nullopt;
    const auto warn = [this](const std::string& message) {
      LogWarning("{}", message);
      Log({.kind = "warning", .fields = {{"message", message}}});
    };
    if (config.checkpoint.moments != job::MomentStorage::kExact) {
      warn(
          "checkpoint.moments: bf16: checkpoints hold rounded moments; what goes on from one does "
          "not repeat the undisturbed run bit for bit");
    }
    if (config.checkpoint.replicas.every > 0 && config.workers.size() < 2) {
      warn(
          "checkpoint.replicas: the job begins with one worker, which alone keeps its snapshots "
          "until others join");
    }
    // Before the remains of dead saves are removed, which may be all that knows.
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
    // Workers that still hold the state train on. Were they lost, a job that began from a model may
    // not begin from the seed: the checkpoint of step 0 is asked for, and found missing.
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
    return folder == nullptr ? Status::Ok() : folder->Sync();
  }

  void Log(const LogEvent& event) {
    metrics_.Note(event);
    if (options_.observer) {
      options_.observer(event);
    }
    MutexLock lock(mutex_);
    if (run_.folder != nullptr) {
      Warn(run_.folder->Append(event));
    }
  }

  void List(const std::vector<ListWorkers::Entry>& workers) {
    MutexLock lock(mutex_);
    workers_ = workers;
    metrics_.SetWorkers(static_cast<int>(workers.size()));
    if (run_.folder != nullptr && server_ != nullptr) {
      run_.folder->SetAddresses(server_->address(), metrics_address_);
      Warn(run_.folder->WriteJobFile(workers));
    }
  }

  static metrics::HttpReply Page() {
    return {.status = 200,
            .content_type = "text/html; charset=utf-8",
            .body = std::string(metrics::StatusPage())};
  }

  metrics::HttpReply StatusJson() {
    CoordinatorServer* server = nullptr;
    {
      MutexLock lock(mutex_);
      server = server_.get();
    }
    if (server == nullptr) {
      return {.status = 503, .body = "starting\n"};
    }
    return {.status = 200,
            .content_type = "application/json",
            .body = StatusToJson(server->StatusNow())};
  }

  metrics::HttpReply Targets() {
    std::vector<metrics::ScrapeTarget> targets = {
        {.address = metrics_address_, .labels = {{"worker", "coordinator"}}}};
    MutexLock lock(mutex_);
    for (const ListWorkers::Entry& worker : workers_) {
      targets.push_back({.address = worker.metrics_address, .labels = {{"worker", worker.name}}});
    }
    return {.status = 200,
            .content_type = "application/json",
            .body = metrics::ServiceDiscoveryJson(targets)};
  }

  const ServiceOptions options_;
  metrics::Registry registry_;
  ServiceMetrics metrics_;
  JobPlanner planner_;
  std::unique_ptr<StateStore> store_;
  std::string metrics_address_;
  std::optional<int64_t> live_generation_;  ///< Whose workers may still be there.

  Mutex mutex_;
  Run run_ HEDDLE_GUARDED_BY(mutex_);
  Run run_before_ HEDDLE_GUARDED_BY(mutex_);  ///< That of the job before, until the next is taken.
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
const std::string& Service::metrics_address() const {
  return impl_->metrics_address();
}

}  // namespace heddle::elastic
