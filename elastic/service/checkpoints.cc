#include "elastic/service/checkpoints.h"

#include <fmt/format.h>

#include "base/log.h"
#include "checkpoint/convert/initial_state.h"
#include "checkpoint/format/extra.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/store/import.h"
#include "checkpoint/store/store.h"
#include "elastic/service/job_policy.h"
#include "engine/job/job.h"
#include "engine/program/state.h"

namespace heddle::elastic {
namespace {

std::vector<checkpoint::TensorInfo> WholeState(const graph::Graph& graph) {
  std::vector<checkpoint::TensorInfo> tensors;
  for (const graph::Parameter& parameter : graph.parameters) {
    for (const program::StateRole role : {program::StateRole::kMaster, program::StateRole::kExpAvg,
                                          program::StateRole::kExpAvgSq}) {
      tensors.push_back({.name = parameter.name,
                         .role = std::string(program::StateRoleName(role)),
                         .dtype = graph.master_dtype(),
                         .shape = parameter.shape});
    }
  }
  return tensors;
}

/// Prunes by the job's rules and returns the removed steps. `sound`: a step that was just
/// committed.
std::vector<int64_t> PruneBy(const job::CheckpointSection& rules,
                             const std::string& root,
                             int64_t sound) {
  auto pruned = checkpoint::Prune(root, {.keep_last = rules.keep,
                                         .keep_every = rules.keep_every,
                                         .keep_best = rules.keep_best,
                                         .sound_step = sound});
  if (!pruned.ok()) {
    LogWarning("old checkpoints stay: {}", pruned.status().message());
    return {};
  }
  return *std::move(pruned);
}

Result<checkpoint::CommitInfo> Commit(const Job& job,
                                      const CommitCheckpoint& commit,
                                      metrics::Registry& registry,
                                      std::vector<int64_t>& pruned) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig config, job::ParseJob(job.yaml, "the job"));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(config.model, job::GraphOptions(config)));
  checkpoint::CommitRequest request;
  request.root = job.checkpoint_root;
  request.step = commit.step;
  request.generation = commit.generation;
  request.job.job_hash = job.id;
  request.job.job_yaml = job.yaml;
  request.job.model = graph::ModelConfigJson(config.model);
  request.job.plan = commit.plan_json;
  request.job.samples_consumed = commit.step * config.batch.global;
  request.expected = WholeState(graph);
  for (const std::string& text : commit.parts) {
    HEDDLE_ASSIGN_OR_RETURN(checkpoint::FilePart part, checkpoint::DecodePart(text));
    request.parts.push_back(std::move(part));
  }
  HEDDLE_RETURN_IF_ERROR(checkpoint::SetDataFingerprint(request.job, commit.facts.data));
  const Provenance& provenance = commit.facts.provenance;
  HEDDLE_RETURN_IF_ERROR(
      checkpoint::SetGuarantee(request.job, {.guarantee = std::string(NameOf(provenance.guarantee)),
                                             .reason = provenance.reason,
                                             .arithmetic = provenance.arithmetic}));
  if (commit.facts.validation_loss) {
    HEDDLE_RETURN_IF_ERROR(
        checkpoint::SetValidationLoss(request.job, *commit.facts.validation_loss));
  }
  HEDDLE_ASSIGN_OR_RETURN(checkpoint::CommitInfo info, checkpoint::Commit(request, registry));
  pruned = PruneBy(config.checkpoint, request.root, commit.step);
  return info;
}

/// Refuses a run that would begin after its own last step: it could never end.
Status CheckHasSteps(int64_t step, int64_t total_steps) {
  return step <= total_steps
             ? Status::Ok()
             : InvalidArgumentError(
                   "the job would go on after step {}, and its last one is {} (steps)", step,
                   total_steps);
}

/// Imports the checkpoint that the job names to resume from, or writes the one of step 0 with the
/// weights that it begins from.
Status ImportNamed(const Job& job) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig config, job::ParseJob(job.yaml, "the job"));
  if (config.checkpoint.resume.empty() && config.init_from.empty()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(config.model, job::GraphOptions(config)));
  if (!config.init_from.empty()) {
    const Status status = checkpoint::WriteInitialState(config.init_from, job.checkpoint_root,
                                                        config.model, WholeState(graph));
    return status.ok() ? status : InvalidArgumentError("init_from: {}", status.message());
  }
  const auto step =
      checkpoint::Import(config.checkpoint.resume, job.checkpoint_root, WholeState(graph));
  return step.ok() ? Status::Ok()
                   : InvalidArgumentError("checkpoint.resume: {}", step.status().message());
}

}  // namespace

Status CheckNamedCheckpoint(const job::JobConfig& config, const std::string& output) {
  if (config.checkpoint.resume.empty() && config.init_from.empty()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(config.model, job::GraphOptions(config)));
  const std::string root = config.checkpoint.RootIn(output);
  if (!config.init_from.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const auto own, checkpoint::List(root));
    const Status weights = own.empty() ? checkpoint::CheckInitialWeights(
                                             config.init_from, config.model, WholeState(graph))
                                       : Status::Ok();  // The job resumes from its own ones.
    return weights.ok() ? weights : InvalidArgumentError("init_from: {}", weights.message());
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto own, checkpoint::List(root));
  if (own.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckDemand(PolicyOf(config), config.checkpoint.resume));
  }
  const auto step = checkpoint::CheckImport(config.checkpoint.resume, root, WholeState(graph));
  const Status status = step.ok() ? CheckHasSteps(*step, config.steps) : step.status();
  return status.ok() ? status : InvalidArgumentError("checkpoint.resume: {}", status.message());
}

CheckpointCommitted CommitParts(const Job& job,
                                const CommitCheckpoint& commit,
                                metrics::Registry& registry) {
  const Time begun = Now();
  CheckpointCommitted committed;
  committed.step = commit.step;
  committed.generation = commit.generation;
  const Result<checkpoint::CommitInfo> info = Commit(job, commit, registry, committed.pruned);
  committed.status = info.status();
  if (info.ok()) {
    committed.bytes = info->bytes;
    committed.raw_bytes = info->raw_bytes;
  }
  committed.seconds = Seconds(Now() - begun);
  return committed;
}

Result<std::vector<int64_t>> NoteLoss(const Job& job, const NoteValidation& note) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig config, job::ParseJob(job.yaml, "the job"));
  const std::string root = job.checkpoint_root;
  HEDDLE_RETURN_IF_ERROR(checkpoint::NoteValidationLoss(root, note.step, note.loss));
  return PruneBy(config.checkpoint, root, note.step);
}

uint64_t DataOf(const job::JobConfig& config, const std::string& root, int64_t step) {
  const auto manifest = checkpoint::LoadManifest(root + "/" + checkpoint::StepFolderName(step));
  const auto before = manifest.ok() ? job::ParseJob(manifest->job.job_yaml, "the checkpoint's job")
                                    : Result<job::JobConfig>(manifest.status());
  return before.ok() && job::DatasetOptions(*before) == job::DatasetOptions(config)
             ? checkpoint::DataFingerprint(manifest->job)
             : 0;
}

Provenance ProvenanceOf(const std::string& path) {
  const auto manifest = checkpoint::LoadManifest(path);
  if (manifest.ok() && manifest->step == 0) {
    return {};
  }
  const auto record =
      manifest.ok() ? checkpoint::GuaranteeOf(manifest->job) : checkpoint::GuaranteeRecord();
  Provenance provenance{.guarantee = GuaranteeNamed(record.guarantee),
                        .reason = record.reason,
                        .arithmetic = record.arithmetic};
  if (provenance.guarantee == Guarantee::kUnknown && provenance.reason.empty()) {
    provenance.reason = fmt::format("{} does not say what computed it", path);
  }
  return provenance;
}

Status CheckDemand(const JobPolicy& policy, const std::string& path) {
  if (policy.demanded == Guarantee::kNone) {
    return Status::Ok();
  }
  const Provenance provenance = ProvenanceOf(path);
  const auto threads = provenance.arithmetic.find("threads");
  std::string why;
  if (provenance.guarantee < policy.demanded) {
    why = fmt::format("is {}: {}", NameOf(provenance.guarantee), provenance.reason);
  } else if (policy.demanded == Guarantee::kPlanInvariant &&
             threads != provenance.arithmetic.end() &&
             threads->second != std::to_string(policy.threads)) {
    why = fmt::format("was computed with threads: {}, and the job has threads: {}", threads->second,
                      policy.threads);
  }
  return why.empty() ? Status::Ok()
                     : InvalidArgumentError(
                           "guarantee: {} cannot be kept: the checkpoint {} {}; begin another run, "
                           "or remove `guarantee`",
                           NameOf(policy.demanded), path, why);
}

Status GoOnFrom(int64_t step, const job::JobConfig& config, bool stored, Job& job) {
  const std::string path = job.checkpoint_root + "/" + checkpoint::StepFolderName(step);
  job.data = DataOf(config, job.checkpoint_root, step);
  job.provenance = ProvenanceOf(path);
  return stored ? Status::Ok() : CheckDemand(job.policy, path);
}

Status CheckTrainedOn(uint64_t fingerprint, const job::JobConfig& config, const std::string& root) {
  HEDDLE_ASSIGN_OR_RETURN(const auto entries, checkpoint::List(root));
  const uint64_t before = entries.empty() ? 0 : DataOf(config, root, entries.back().step);
  if (before == 0 || before == fingerprint) {
    return Status::Ok();
  }
  return InvalidArgumentError(
      "data: they have changed: their fingerprint is {:016x}, and that of the checkpoint of step "
      "{} in {} is {:016x}; begin another run, with init_from where it is to have these weights",
      fingerprint, entries.back().step, root, before);
}

Result<std::vector<int64_t>> SoundCheckpoints(
    const Job& job,
    std::optional<int64_t> live_generation,
    ReadNewest read_newest,
    const std::function<void(const std::string&)>& skipped) {
  // Only the newest sound one is read in full; older ones are listed by name and read when they are
  // needed.
  const std::string root = job.checkpoint_root;
  const auto cleaned = checkpoint::CleanOrphans(root, live_generation);
  if (!cleaned.ok()) {
    skipped(cleaned.status().message());
  }
  HEDDLE_RETURN_IF_ERROR(ImportNamed(job));
  HEDDLE_ASSIGN_OR_RETURN(const auto entries, checkpoint::List(root));
  std::vector<int64_t> steps;
  if (entries.empty()) {
    return steps;
  }
  int64_t newest = entries.back().step;
  if (read_newest == ReadNewest::kWhole) {
    const auto sound = checkpoint::FindNewestSound(root, skipped);
    if (!sound.ok()) {
      return InvalidArgumentError("no checkpoint is sound: {}", sound.status().message());
    }
    newest = sound->step;
  }
  const Status has_steps = CheckHasSteps(newest, job.policy.total_steps);
  HEDDLE_RETURN_IF_ERROR(has_steps.WithContext("checkpoints of {}", root));
  for (const checkpoint::Entry& entry : entries) {
    if (entry.step <= newest) {
      steps.push_back(entry.step);
    }
  }
  return steps;
}

}  // namespace heddle::elastic
