#include "engine/job/effects.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::job {
namespace {

/// A value that is given, and what rules it out.
struct Rule {
  std::string key;
  bool given = false;
  bool ruled_out = false;
  std::string by;  ///< "data.tokens is given".
  std::string mend;
};

std::vector<Rule> DataRules(const JobConfig& job) {
  const DataSection& data = job.data;
  const bool validates = data.validation_fraction > 0;
  const std::string no_validation = "data.validation_fraction is 0";
  const std::string mend = "set data.validation_fraction";
  return {
      {"data.include", !data.include.empty(), !data.tokens.empty(), "data.tokens is one file",
       "name folders in data.text"},
      {"data.token_type", data.token_type != DataSection().token_type, !data.text.empty(),
       "tokens of data.text are bytes", "give data.tokens"},
      {"validation.every", job.validation.every > 0, !validates, no_validation, mend},
      {"validation.batches", job.validation.batches > 1, !validates, no_validation, mend},
  };
}

std::vector<Rule> OptimizerRules(const JobConfig& job) {
  const OptimizerSection& optimizer = job.optimizer;
  return {
      {"optimizer.minimum_learning_rate", optimizer.minimum_learning_rate > 0,
       optimizer.schedule == LearningRateSchedule::kConstant, "optimizer.schedule is constant",
       "choose the schedule cosine"},
  };
}

// A job without checkpoints of its own still saves what it holds when all of its workers are told
// to end: how checkpoints are written and kept counts then, too.
std::vector<Rule> CheckpointRules(const JobConfig& job) {
  const CheckpointSection& checkpoint = job.checkpoint;
  const ReplicaSection& replicas = checkpoint.replicas;
  const bool none = replicas.every == 0;
  const std::string no_replicas = "checkpoint.replicas.every is 0";
  const std::string mend = "set checkpoint.replicas.every";
  return {
      {"checkpoint.when_busy", checkpoint.when_busy != CheckpointSection().when_busy,
       !checkpoint.background,
       "checkpoint.background is false, so no save is under way when the next one is due",
       "remove one of them"},
      {"checkpoint.replicas.copies", replicas.copies > 1, none, no_replicas, mend},
      {"checkpoint.replicas.compress", !replicas.compress, none, no_replicas, mend},
      {"elastic.recover_from", job.elastic.recover_from == RecoverFrom::kReplicas, none,
       no_replicas, mend},
  };
}

}  // namespace

void RefuseWithoutEffect(YamlReader& root, const JobConfig& job) {
  for (const auto& rules : {DataRules(job), OptimizerRules(job), CheckpointRules(job)}) {
    for (const Rule& rule : rules) {
      if (rule.given && rule.ruled_out) {
        root.FailAmong({rule.key}, fmt::format("{} has no effect: {}", rule.key, rule.by),
                       fmt::format("{}, or remove {}", rule.mend, rule.key));
      }
    }
  }
}

void RefuseVoidGuarantee(YamlReader& root, const JobConfig& job) {
  if (job.guarantee == Guarantee::kNone) {
    return;
  }
  if (job.determinism == program::Determinism::kRelaxed) {
    root.FailAmong({"guarantee", "determinism"},
                   "no guarantee can be kept with determinism: relaxed, under which the order of "
                   "sums depends on the plan",
                   "remove one of them");
  }
  if (job.checkpoint.moments != MomentStorage::kExact) {
    root.FailAmong({"guarantee", "checkpoint.moments"},
                   "no guarantee can be kept with checkpoint.moments: bf16, which rounds the state "
                   "that a recovery goes on from",
                   "remove one of them");
  }
}

void RefuseParallel(YamlReader& root, const JobConfig& job) {
  if (job.parallel.divides_optimizer && job.optimizer.adamw.slices < 2) {
    root.FailAmong({"parallel.optimizer", "optimizer.slices"},
                   "an optimizer of one slice cannot be divided", "remove optimizer.slices");
  }
  const int members = job.parallel.tensor;
  if (members == 1) {
    if (job.parallel.divides_sequence) {
      root.FailAmong({"parallel.sequence", "parallel.tensor"},
                     "a stage of one worker has nobody to divide positions with",
                     "set parallel.tensor, or remove parallel.sequence");
    }
    return;
  }
  if (job.determinism == program::Determinism::kExact) {
    root.FailAmong({"parallel.tensor", "determinism"},
                   "workers that share a layer add its parts in an order of their own, and "
                   "determinism is exact",
                   "set determinism: relaxed, or remove parallel.tensor");
  }
  if (members > job.model.num_attention_heads) {
    root.FailAmong({"parallel.tensor", "model.num_attention_heads"},
                   fmt::format("{} workers cannot share a layer of {} heads", members,
                               job.model.num_attention_heads),
                   "set parallel.tensor to the number of heads at most");
  }
}

std::vector<std::string> StartWarnings(const JobConfig& job) {
  std::vector<std::string> warnings;
  if (job.checkpoint.moments != MomentStorage::kExact) {
    warnings.emplace_back(
        "checkpoint.moments: bf16: checkpoints hold rounded moments; what goes on from one does "
        "not repeat the undisturbed run bit for bit");
  }
  if (job.checkpoint.replicas.every > 0 && job.workers.size() < 2) {
    warnings.emplace_back(
        "checkpoint.replicas: the job begins with one worker, which alone keeps its snapshots "
        "until others join");
  }
  for (const std::string& name :
       job.plan.has_value() ? job.plan->workers : std::vector<std::string>()) {
    if (std::ranges::find(job.workers, name, &WorkerSection::name) == job.workers.end()) {
      warnings.push_back(
          fmt::format("plan: its worker {} is not one of `workers`: until it has joined, a plan is "
                      "searched for",
                      name));
    }
  }
  return warnings;
}

std::vector<std::string> SubmitWarnings(const JobConfig& job) {
  std::vector<std::string> warnings;
  if (job.elastic.restart) {
    warnings.emplace_back(
        "elastic.restart has no effect for a job that is submitted: a worker is started again by "
        "what started it");
  }
  if (job.metrics.port != 0) {
    warnings.emplace_back(
        "metrics.port has no effect for a job that is submitted: the coordinator's metrics are "
        "where `heddle serve --metrics` puts them");
  }
  return warnings;
}

}  // namespace heddle::job
