/// \file
/// The job file: everything a user says about one training run, checked. docs/reference/job-file.md
/// lists every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/cost/transport_choice.h"
#include "engine/data/dataset.h"
#include "engine/graph/models/model.h"
#include "engine/program/plan.h"

namespace heddle::job {

/// Where tokens come from. Exactly one of text and tokens is given.
struct DataSection {
  std::vector<std::string> text;      ///< Files or folders of text; byte-level tokens.
  std::vector<std::string> include;   ///< Globs within folders; empty: everything.
  std::string tokens;                 ///< A file of token ids.
  std::string token_type = "uint16";  ///< "uint16" or "uint32".
  double validation_fraction = 0.05;  ///< Contiguous tail.
};

struct BatchSection {
  int64_t microbatch = 1;  ///< Samples of one microbatch.
  int64_t global = 1;      ///< Samples of one step; a multiple of microbatch.
  int64_t sequence = 128;  ///< Tokens of one sample.

  int64_t microbatches() const { return global / microbatch; }
  int64_t tokens() const { return global * sequence; }
};

enum class LearningRateSchedule : uint8_t { kConstant, kCosine };

struct OptimizerSection {
  double learning_rate = 3e-4;
  double minimum_learning_rate = 0;  ///< End of the cosine.
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  int64_t warmup_steps = 0;
  graph::AdamW adamw;
};

/// A device that is made slower, smaller or farther away than it is.
struct Emulation {
  double speed = 1;                  ///< (0, 1].
  int64_t memory_bytes = 0;          ///< 0: no cap.
  double link_bytes_per_second = 0;  ///< 0: unlimited.
};

struct WorkerSection {
  std::string name;
  std::string failure_domain;  ///< What is lost as one; empty: unknown.
  Emulation emulation;
};

/// A transfer between workers may take so many leases, unless the job says another time.
inline constexpr int kMoveLeases = 10;

/// What is done about a lasting change of a worker's speed, or of a link.
enum class DriftAction : uint8_t { kObserve, kAdvise, kAct };

/// Where a recovery takes the state from, where it is there; kFastest: what is predicted to be it.
enum class RecoverFrom : uint8_t { kFastest, kLive, kReplicas, kCheckpoint };

struct ElasticSection {
  int64_t minimum_workers = 1;
  Duration lease = std::chrono::seconds(3);
  bool restart = false;  ///< `train` starts a lost local worker again.
  Duration operation_timeout = std::chrono::seconds(30);
  int64_t digest_every = 100;  ///< Steps between comparisons of replicas; 0: none.
  DriftAction drift = DriftAction::kAct;
  double drift_threshold = 1.2;  ///< Lasting change of speed that is worth a look.
  RecoverFrom recover_from = RecoverFrom::kFastest;
  Duration notice = std::chrono::minutes(2);  ///< Between SIGTERM and the end of all processes.
};

struct CommSection {
  std::vector<std::string> transports;  ///< That may join workers, best first; empty: all.
  comm::TransportRule choose = comm::TransportRule::kCheapest;
  bool tls = false;  ///< Encrypt what leaves a machine.

  /// The same with every transport named.
  comm::TransportPreference preference() const;
};

enum class NonFinitePolicy : uint8_t { kStop, kSkip };

/// What a checkpoint does that is due while the one before is still being written.
enum class BusyPolicy : uint8_t { kWait, kSkip };

/// How checkpoints hold the optimizer's moments.
enum class MomentStorage : uint8_t { kExact, kBF16 };

/// Snapshots of the state that workers keep in each other's memory.
struct ReplicaSection {
  int64_t every = 0;     ///< Steps between them; 0: none.
  int64_t copies = 1;    ///< Workers that keep a worker's part beside itself.
  bool compress = true;  ///< Otherwise as it is: less compute, more memory and traffic.
};

struct CheckpointSection {
  int64_t every = 0;       ///< Steps; 0: only at the end.
  int64_t keep = 3;        ///< Newest ones that stay,
  int64_t keep_every = 0;  ///< those whose step it divides (0: none),
  bool keep_best = false;  ///< and the one with the least validation loss.
  bool last = true;        ///< Also after the last step.
  BusyPolicy when_busy = BusyPolicy::kWait;
  bool background = true;  ///< Otherwise training waits until one is on storage.
  MomentStorage moments = MomentStorage::kExact;
  ReplicaSection replicas = {};
  std::string resume =
      {};  ///< Checkpoint to begin from; empty: the newest of the run's own, if any.
  std::string store = {};  ///< Where they lie, a path or a URL; empty: OUTPUT/checkpoints.

  /// Where they lie when the run's folder is `output`.
  std::string RootIn(const std::string& output) const {
    return store.empty() ? output + "/checkpoints" : store;
  }
};

struct ValidationSection {
  int64_t every = 0;    ///< Steps; 0: only at the end, when there is validation data.
  int64_t batches = 1;  ///< Global batches of validation samples.
};

struct MetricsSection {
  int64_t port = 0;  ///< Of the coordinator; 0: any free one.
};

struct JobConfig {
  std::string name;
  int64_t steps = 0;
  std::string output;  ///< Folder of the run; empty: runs/NAME.
  std::string
      init_from;  ///< A model whose weights the run begins with; empty: drawn from the seed.
  uint64_t seed = 0;
  graph::ModelConfig model;
  DataSection data;
  BatchSection batch;
  OptimizerSection optimizer;
  DType precision = DType::kF32;
  int64_t threads = 1;  ///< Compute threads of each worker.
  std::vector<WorkerSection> workers;
  ElasticSection elastic;
  CommSection comm;
  NonFinitePolicy on_non_finite = NonFinitePolicy::kStop;
  CheckpointSection checkpoint;
  ValidationSection validation;
  MetricsSection metrics;
  program::Determinism determinism = program::Determinism::kExact;
  std::optional<program::Plan> plan;  ///< A plan file given by the user instead of a search.

  std::string
      text;  ///< The effective job as YAML with absolute paths: parses to the same job anywhere.
  std::string hash;  ///< Of what was said, not of how it was written.
};

/// Reads and checks a job file. `overrides`: "key.path=value" each.
/// Errors: kInvalidArgument, one line a problem "FILE:LINE:COL: error: …"; kNotFound.
Result<JobConfig> LoadJob(const std::string& path, const std::vector<std::string>& overrides);

/// The same from text that LoadJob made (JobConfig::text).
Result<JobConfig> ParseJob(const std::string& text, const std::string& filename);

/// Learning rate of step 1, 2, …, steps: linear warm-up, then constant or cosine.
double LearningRate(const OptimizerSection& optimizer, int64_t step, int64_t steps);

/// What engine/graph builds the job's graphs from.
graph::TrainingGraphOptions GraphOptions(const JobConfig& job);

/// What engine/data opens the job's data with.
data::DatasetOptions DatasetOptions(const JobConfig& job);

}  // namespace heddle::job
