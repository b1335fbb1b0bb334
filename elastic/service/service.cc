#include "elastic/service/service.h"

#include <map>
#include <optional>
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
#include "elastic/store/store.h"
#include "metrics/dashboard/status_page.h"
#include "metrics/exposition/exposer.h"
#include "metrics/service_discovery.h"

namespace heddle::elastic {

class Service::Impl {
 public:
  explicit Impl(ServiceOptions options) : options_(std::move(options)), metrics_(registry_) {}

  Status Open() {
    HEDDLE_ASSIGN_OR_RETURN(store_, OpenSqliteStore(options_.store_path));
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
      if (folder_ != nullptr) {
        folder_->SetAddresses(server_->address(), metrics_address_);
        Warn(folder_->WriteJobFile(workers_));
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
        .log = [this](const LogEvent& event) { Log(event); },
        .sync_log =
            [this] {
              MutexLock lock(mutex_);
              return folder_ == nullptr ? Status::Ok() : folder_->Sync();
            },
        .list_workers = [this](const std::vector<ListWorkers::Entry>& workers) { List(workers); },
        .worker_gone =
            [this](const WorkerGone& gone) {
              if (options_.worker_gone) {
                options_.worker_gone(gone);
              }
            },
        .ended = [](const EndJob&) {}};
  }

  // Reads a submitted job and opens its folder: from then on its events have a place.
  Result<Job> ReadJob(const std::string& yaml, const std::string& path) {
    HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig config,
                            job::ParseJob(yaml, path.empty() ? "the job" : path));
    std::string output = options_.output;
    if (output.empty()) {
      output = config.output.empty() ? options_.default_output + "/" + config.name : config.output;
    }
    HEDDLE_RETURN_IF_ERROR(CheckNamedCheckpoint(config, output));
    HEDDLE_ASSIGN_OR_RETURN(auto folder, RunFolder::Open(output));
    bool restoring = false;  // Of a predecessor's job, before this coordinator answers.
    {
      MutexLock lock(mutex_);
      restoring = server_ == nullptr;
      folder_ = std::move(folder);
      folder_->SetAddresses(server_ == nullptr ? "" : server_->address(), metrics_address_);
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
    auto checkpoints = SoundCheckpoints(
        job, live, [&](const std::string& line) { warn("checkpoint skipped: " + line); });
    if (!checkpoints.ok() && !(restoring && options_.workers_outlive)) {
      return checkpoints.status();
    }
    // Workers that still hold the state train on. Were they lost, a job that began from a model may
    // not begin from the seed: the checkpoint of step 0 is asked for, and found missing.
    const std::vector<int64_t> none =
        config.init_from.empty() ? std::vector<int64_t>() : std::vector<int64_t>{0};
    MutexLock lock(mutex_);
    checkpoints_ = checkpoints.ok() ? *std::move(checkpoints) : none;
    return job;
  }

  void Log(const LogEvent& event) {
    metrics_.Note(event);
    if (options_.observer) {
      options_.observer(event);
    }
    MutexLock lock(mutex_);
    if (folder_ != nullptr) {
      Warn(folder_->Append(event));
    }
  }

  void List(const std::vector<ListWorkers::Entry>& workers) {
    MutexLock lock(mutex_);
    workers_ = workers;
    metrics_.SetWorkers(static_cast<int>(workers.size()));
    if (folder_ != nullptr && server_ != nullptr) {
      folder_->SetAddresses(server_->address(), metrics_address_);
      Warn(folder_->WriteJobFile(workers));
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
  std::unique_ptr<RunFolder> folder_ HEDDLE_GUARDED_BY(mutex_);
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
