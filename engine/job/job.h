/// \file
/// The job file: a user's description of a training run, validated. docs/reference/job-file.md
/// lists every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/cost/transport_choice.h"
#include "engine/data/dataset.h"
#include "engine/graph/models/model.h"
#include "engine/program/plan.h"

namespace heddle::job {

/// The source of tokens. Exactly one of `text` and `tokens` is given.
struct DataSection {
  std::vector<std::string> text;      ///< Files or folders of text; byte-level tokens.
  std::vector<std::string> include;   ///< Globs within folders; empty: everything.
  std::string tokens;                 ///< A file of token ids.
  std::string token_type = "uint16";  ///< "uint16" or "uint32".
  double validation_fraction = 0.05;  ///< Fraction of the data, at its end, for validation.
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
  double minimum_learning_rate = 0;  ///< Learning rate at the end of the cosine.
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  int64_t warmup_steps = 0;
  graph::AdamW adamw;
};

/// Emulation of a device that is slower, has less memory or has a slower link.
struct Emulation {
  double speed = 1;                  ///< Factor of the speed, in (0, 1].
  int64_t memory_bytes = 0;          ///< Limit of the memory; 0: none.
  double link_bytes_per_second = 0;  ///< Link rate; 0: unlimited.
};

struct WorkerSection {
  std::string name;
  std::string failure_domain;  ///< Workers of one domain may fail together; empty: unknown.
  Emulation emulation;
  std::string device = "cpu";  ///< A name of engine/machine/device_name.h.
};

/// Default timeout of a transfer between workers, in leases.
inline constexpr int kMoveLeases = 10;

/// The reaction to a lasting change of a worker's speed, or of a link.
enum class DriftAction : uint8_t { kObserve, kAdvise, kAct };

/// The preferred source of the state in a recovery, if it is available; kFastest: the source that
/// is predicted to be the fastest.
enum class RecoverFrom : uint8_t { kFastest, kLive, kReplicas, kCheckpoint };

struct ElasticSection {
  int64_t minimum_workers = 1;
  Duration lease = std::chrono::seconds(3);
  bool restart = false;  ///< Whether `train` restarts a lost local worker.
  Duration operation_timeout = std::chrono::seconds(30);
  int64_t digest_every = 100;  ///< Steps between comparisons of replicas; 0: none.
  DriftAction drift = DriftAction::kAct;
  double drift_threshold = 1.2;  ///< Factor of a lasting change of speed that counts as drift.
  RecoverFrom recover_from = RecoverFrom::kFastest;
  Duration notice = std::chrono::minutes(2);  ///< Time from SIGTERM to the end of all processes.
};

/// Slices of an optimizer that is divided, unless a job names their number: shares are even to 1 / 64.
inline constexpr int64_t kSlices = 64;

/// How workers divide layers and the optimizer.
struct ParallelSection {
  /// `tensor` where the planner chooses.
  static constexpr int kAuto = 0;

  int tensor = 1;  ///< Workers of each stage, which share every layer; kAuto.
  /// Whether the workers of a stage divide the residual stream by positions.
  bool divides_sequence = false;
  /// Whether workers that hold the same matrix divide its optimizer state (program::Plan).
  bool divides_optimizer = false;

  /// The numbers of workers that the stages of a plan may have, one for all stages of it.
  std::vector<int> sizes() const {
    return tensor == kAuto ? std::vector{1, 2, 4, 8} : std::vector{tensor};
  }
};

struct CommSection {
  std::vector<std::string> transports;  ///< Transports to use, best first; empty: all.
  comm::TransportRule choose = comm::TransportRule::kCheapest;
  bool tls = false;  ///< Encrypt everything that leaves a machine.

  /// The preference with `choose` and the names of all transports if `transports` is empty.
  comm::TransportPreference preference() const;
};

/// What a job may demand of the bits of its losses and weights. Under kPerPlan the same plans on the
/// same workers repeat them, under kPlanInvariant any plans on workers that compute alike.
enum class Guarantee : uint8_t { kNone, kPerPlan, kPlanInvariant };

enum class NonFinitePolicy : uint8_t { kStop, kSkip };

/// What happens to a checkpoint that is due while the previous one is still being written.
enum class BusyPolicy : uint8_t { kWait, kSkip };

/// The precision of the optimizer's moments in checkpoints.
enum class MomentStorage : uint8_t { kExact, kBF16 };

/// Snapshots of the state that workers keep in each other's memory.
struct ReplicaSection {
  int64_t every = 0;     ///< Steps between snapshots; 0: none.
  int64_t copies = 1;    ///< Number of other workers that hold a replica of a worker's shard.
  bool compress = true;  ///< Compress shards: more compute, less memory and traffic.
};

struct CheckpointSection {
  int64_t every = 0;       ///< Steps between checkpoints; 0: only at the end.
  int64_t keep = 3;        ///< Number of newest checkpoints to keep.
  int64_t keep_every = 0;  ///< Keep checkpoints whose step is a multiple of it; 0: none.
  bool keep_best = false;  ///< Keep the checkpoint with the least validation loss.
  bool last = true;        ///< Save a checkpoint after the last step, too.
  BusyPolicy when_busy = BusyPolicy::kWait;
  bool background = true;  ///< False: training waits until a checkpoint is on storage.
  MomentStorage moments = MomentStorage::kExact;
  ReplicaSection replicas = {};
  std::string resume =
      {};  ///< The checkpoint to resume from; empty: the newest one of this run, if any.
  std::string store = {};  ///< Root of the checkpoints, a path or URL; empty: OUTPUT/checkpoints.

  /// Root of the checkpoints if the run's folder is `output`.
  std::string RootIn(const std::string& output) const {
    return store.empty() ? output + "/checkpoints" : store;
  }
};

struct ValidationSection {
  int64_t every = 0;    ///< Steps between validations; 0: only at the end, if there is data.
  int64_t batches = 1;  ///< Global batches of validation samples.
};

struct MetricsSection {
  int64_t port = 0;  ///< Port of the coordinator's metrics; 0: any free one.
};

struct JobConfig {
  std::string name;
  int64_t steps = 0;
  std::string output;  ///< Folder of the run; empty: runs/NAME.
  std::string
      init_from;  ///< A model with the run's initial weights; empty: they are drawn from the seed.
  uint64_t seed = 0;
  graph::ModelConfig model;
  DataSection data;
  BatchSection batch;
  OptimizerSection optimizer;
  DType precision = DType::kF32;
  int64_t threads = 1;         ///< Compute threads of each worker.
  std::string device = "cpu";  ///< Device of each worker that names none of its own.
  std::vector<WorkerSection> workers;
  ElasticSection elastic;
  ParallelSection parallel;
  CommSection comm;
  NonFinitePolicy on_non_finite = NonFinitePolicy::kStop;
  CheckpointSection checkpoint;
  ValidationSection validation;
  MetricsSection metrics;
  program::Determinism determinism = program::Determinism::kExact;
  Guarantee guarantee = Guarantee::kNone;  ///< What the job demands.
  std::optional<program::Plan> plan;       ///< A plan file given by the user instead of a search.

  std::string
      text;  ///< The effective job as YAML with absolute paths; means the same in any folder.
  std::string hash;  ///< Hash of the content, independent of comments and layout.
};

/// Reads and validates a job file. Each of `overrides` is "key.path=value".
/// Errors: kInvalidArgument, with one line per problem "FILE:LINE:COL: error: …"; kNotFound.
Result<JobConfig> LoadJob(const std::string& path, const std::vector<std::string>& overrides);

/// Parses and validates a text of JobConfig::text. Errors: those of LoadJob.
Result<JobConfig> ParseJob(const std::string& text, const std::string& filename);

/// The learning rate of step `step`, from 1 to `steps`: linear warm-up, then constant or cosine.
double LearningRate(const OptimizerSection& optimizer, int64_t step, int64_t steps);

/// The name of the device that the job gives to a worker: that of its entry, else the job's.
const std::string& DeviceOf(const JobConfig& job, std::string_view worker);

/// The options for building the job's graphs.
graph::TrainingGraphOptions GraphOptions(const JobConfig& job);

/// The options for opening the job's data.
data::DatasetOptions DatasetOptions(const JobConfig& job);

}  // namespace heddle::job
