#include "engine/job/job.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>

#include "base/system/file.h"
#include "base/yaml/yaml.h"
#include "comm/cost/transport_traits.h"
#include "engine/job/effects.h"
#include "engine/job/model_section.h"
#include "engine/machine/device_name.h"

namespace heddle::job {
namespace {

constexpr int64_t kMax = int64_t{1} << 40;
constexpr int64_t kPlanBytesMost = 64 << 20;

DataSection ReadData(YamlReader data) {
  DataSection section;
  if (data.Has("text")) {
    section.text = data.PathList("text");
  }
  section.include = data.List<std::string>("include");
  section.tokens = data.OptionalPath("tokens", "");
  section.token_type = data.OptionalChoice<std::string>(
      "token_type", "uint16", {{"uint16", "uint16"}, {"uint32", "uint32"}});
  section.validation_fraction =
      data.Optional<double>("validation_fraction", 0.05, {.least = 0.0, .below = 1.0});
  if (data.present() && section.text.empty() == section.tokens.empty()) {
    data.Fail("", "expected exactly one of data.text and data.tokens");
  }
  return section;
}

BatchSection ReadBatch(YamlReader batch) {
  const Range<int64_t> positive{.least = 1, .most = int64_t{1} << 24};
  BatchSection section;
  section.microbatch = batch.Required<int64_t>("microbatch", positive);
  section.global = batch.Required<int64_t>("global", positive);
  section.sequence = batch.Required<int64_t>("sequence", positive);
  if (section.microbatch > 0 && section.global % section.microbatch != 0) {
    batch.FailAmong({"global", "microbatch"},
                    "batch.global " + std::to_string(section.global) +
                        " cannot be split into microbatches of " +
                        std::to_string(section.microbatch) + " samples (batch.microbatch)",
                    "make batch.global a multiple of batch.microbatch");
    section.global = section.microbatch;
  }
  return section;
}

// `slices`: those of a file that names none.
OptimizerSection ReadOptimizer(YamlReader optimizer, int64_t slices) {
  OptimizerSection section;
  const Range<double> fraction{.least = 0.0, .below = 1.0};
  section.learning_rate =
      optimizer.Required<double>("learning_rate", {.most = 100.0, .above = 0.0});
  section.minimum_learning_rate =
      optimizer.Optional<double>("minimum_learning_rate", 0.0, {.least = 0.0, .most = 100.0});
  section.schedule = optimizer.OptionalChoice<LearningRateSchedule>(
      "schedule", LearningRateSchedule::kCosine,
      {{"cosine", LearningRateSchedule::kCosine}, {"constant", LearningRateSchedule::kConstant}});
  section.warmup_steps = optimizer.Optional<int64_t>("warmup_steps", 0, {.least = 0, .most = kMax});
  section.adamw.beta1 = optimizer.Optional<double>("beta1", 0.9, fraction);
  section.adamw.beta2 = optimizer.Optional<double>("beta2", 0.95, fraction);
  section.adamw.epsilon = optimizer.Optional<double>("epsilon", 1e-8, {.above = 0.0});
  section.adamw.weight_decay = optimizer.Optional<double>("weight_decay", 0.1, {.least = 0.0});
  section.adamw.max_gradient_norm =
      optimizer.Optional<double>("max_gradient_norm", 1.0, {.least = 0.0});
  section.adamw.slices = optimizer.Optional<int64_t>("slices", slices, {.least = 1, .most = 4096});
  return section;
}

Emulation ReadEmulation(YamlReader emulate) {
  Emulation emulation;
  emulation.speed = emulate.Optional<double>("speed", 1.0, {.most = 1.0, .above = 0.0});
  emulation.memory_bytes = emulate.Optional<ByteSize>("memory", ByteSize{0}).value;
  emulation.link_bytes_per_second = emulate.Optional<ByteRate>("link", ByteRate{0}).value;
  return emulation;
}

bool IsWorkerWord(const std::string& word) {
  return word.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
         std::string::npos;
}

// `otherwise`: the device of a mapping that names none.
std::string ReadDevice(YamlReader& reader, const std::string& otherwise) {
  std::string name = reader.Optional<std::string>("device", otherwise);
  if (const Status status = machine::ParseDeviceName(name).status(); !status.ok()) {
    reader.Fail("device", status.message());
    return otherwise;  // The job's own would be found wrong for each of its workers again.
  }
  return name;
}

std::vector<WorkerSection> ReadWorkers(YamlReader& job, const std::string& device) {
  std::vector<WorkerSection> workers;
  std::set<std::string> names;
  for (YamlReader& worker : job.Children("workers")) {
    WorkerSection section;
    section.name = worker.Optional<std::string>("name", "worker-" + std::to_string(workers.size()));
    section.failure_domain = worker.Optional<std::string>("failure_domain", "");
    section.emulation = ReadEmulation(worker.OptionalChild("emulate"));
    section.device = ReadDevice(worker, device);
    if (!IsWorkerWord(section.failure_domain) || section.failure_domain.size() > 64) {
      worker.Fail("failure_domain",
                  "a failure domain has at most 64 letters, digits, '-', '_' and '.', got '" +
                      section.failure_domain.substr(0, 80) + "'");
    }
    if (!IsWorkerWord(section.name) || section.name.front() == '.') {
      worker.Fail("name", "a worker's name has letters, digits, '-', '_' and '.' only, got '" +
                              section.name + "'");
    } else if (!names.insert(section.name).second) {
      worker.Fail("name", "two workers are named '" + section.name + "'");
    }
    workers.push_back(std::move(section));
  }
  if (workers.empty()) {
    workers.push_back(
        {.name = "worker-0", .failure_domain = {}, .emulation = {}, .device = device});
  }
  return workers;
}

constexpr Range<Duration> kLeases{std::chrono::milliseconds(500), std::chrono::hours(1)};

ElasticSection ReadElastic(YamlReader elastic) {
  ElasticSection section;
  section.minimum_workers =
      elastic.Optional<int64_t>("minimum_workers", 1, {.least = 1, .most = 1 << 20});
  section.lease = elastic.Optional<Duration>("lease", section.lease, kLeases);
  section.restart = elastic.Optional<bool>("restart", false);
  section.operation_timeout = elastic.Optional<Duration>(
      "operation_timeout", kMoveLeases * section.lease, {.least = std::chrono::milliseconds(100)});
  section.drift = elastic.OptionalChoice<DriftAction>("drift", DriftAction::kAct,
                                                      {{"observe", DriftAction::kObserve},
                                                       {"advise", DriftAction::kAdvise},
                                                       {"act", DriftAction::kAct}});
  section.drift_threshold =
      elastic.Optional<double>("drift_threshold", 1.2, {.most = 100.0, .above = 1.0});
  section.recover_from =
      elastic.OptionalChoice<RecoverFrom>("recover_from", RecoverFrom::kFastest,
                                          {{"fastest", RecoverFrom::kFastest},
                                           {"live", RecoverFrom::kLive},
                                           {"replicas", RecoverFrom::kReplicas},
                                           {"checkpoint", RecoverFrom::kCheckpoint}});
  section.digest_every = elastic.Optional<int64_t>("digest_every", 100, {.least = 0, .most = kMax});
  section.notice = elastic.Optional<Duration>("notice", section.notice, {.least = FromSeconds(1)});
  return section;
}

CommSection ReadComm(YamlReader reader) {
  CommSection section;
  section.transports = reader.List<std::string>("transports");
  if (reader.Has("transports") && section.transports.empty()) {
    reader.Fail("transports", "empty: without a transport there is no job of several workers");
  } else if (const Status status = comm::CheckTransportNames(section.transports); !status.ok()) {
    reader.Fail("transports", status.message());
  }
  section.choose = reader.OptionalChoice<comm::TransportRule>(
      "choose", section.choose,
      {{"cheapest", comm::TransportRule::kCheapest}, {"first", comm::TransportRule::kFirst}});
  section.tls = reader.Optional<bool>("tls", false);
  const auto is_readable = [](const std::string& name) {
    const comm::TransportTraits* const traits = comm::FindTransport(name);
    return traits != nullptr && !traits->encrypts;
  };
  if (section.tls && !section.transports.empty() &&
      std::all_of(section.transports.begin(), section.transports.end(), is_readable)) {
    reader.Fail("tls", comm::FindTransport(section.transports.front())->title +
                           " is not encrypted, and comm.transports allows nothing else: add " +
                           comm::UniversalTransport());
  }
  return section;
}

void ReadPlan(YamlReader& root, JobConfig& job) {
  const std::string path = root.OptionalPath("plan", "");
  if (path.empty()) {
    return;
  }
  const Result<std::string> text = ReadFile(path, kPlanBytesMost);
  if (!text.ok()) {
    root.Fail("plan", text.status().message());
    return;
  }
  Result<program::Plan> plan = program::PlanFromJson(*text);
  if (!plan.ok()) {
    root.Fail("plan", path + ": " + plan.status().message());
  } else if (plan->microbatches() != job.batch.microbatches()) {
    root.FailAmong({"plan", "batch.global", "batch.microbatch"},
                   "plan: " + path + ": the plan has " + std::to_string(plan->microbatches()) +
                       " microbatches, the job " + std::to_string(job.batch.microbatches()));
  } else {
    job.plan = *std::move(plan);
  }
}

/// A number of newest ones; or a mapping of several rules.
void ReadKeep(YamlReader& checkpoint, CheckpointSection& section) {
  if (!checkpoint.IsMapping("keep")) {
    section.keep = checkpoint.Optional<int64_t>("keep", 3, {.least = 2, .most = 1 << 20});
    return;
  }
  YamlReader keep = checkpoint.Child("keep");
  section.keep = keep.Optional<int64_t>("last", 3, {.least = 1, .most = 1 << 20});
  section.keep_every = keep.Optional<int64_t>("every", 0, {.least = 0, .most = kMax});
  section.keep_best = keep.OptionalChoice<bool>("best", false, {{"loss", true}});
}

CheckpointSection ReadCheckpoint(YamlReader checkpoint) {
  CheckpointSection section;
  section.every = checkpoint.Optional<int64_t>("every", 0, {.least = 0, .most = kMax});
  ReadKeep(checkpoint, section);
  section.last = checkpoint.Optional<bool>("last", true);
  section.when_busy = checkpoint.OptionalChoice<BusyPolicy>(
      "when_busy", BusyPolicy::kWait, {{"wait", BusyPolicy::kWait}, {"skip", BusyPolicy::kSkip}});
  section.background = checkpoint.Optional<bool>("background", true);
  section.moments = checkpoint.OptionalChoice<MomentStorage>(
      "moments", MomentStorage::kExact,
      {{"exact", MomentStorage::kExact}, {"bf16", MomentStorage::kBF16}});
  YamlReader replicas = checkpoint.OptionalChild("replicas");
  section.replicas.every = replicas.Optional<int64_t>("every", 0, {.least = 0, .most = kMax});
  section.replicas.copies = replicas.Optional<int64_t>("copies", 1, {.least = 1, .most = 8});
  section.replicas.compress = replicas.Optional<bool>("compress", true);
  section.resume = checkpoint.OptionalPath("resume", "");
  section.store = checkpoint.OptionalPath("store", "");
  return section;
}

// It names a folder.
bool IsJobName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; });
}

// A number, or a word.
int ReadMembers(YamlReader& parallel) {
  constexpr int kMostMembers = 64;
  const std::string text = parallel.Optional<std::string>("tensor", "1");
  if (text == "auto") {
    return ParallelSection::kAuto;
  }
  int members = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), members);
  if (error != std::errc() || end != text.data() + text.size() || members < 1 ||
      members > kMostMembers) {
    parallel.Fail("tensor", fmt::format("'{}' is no number of workers of a stage", text),
                  fmt::format("write a number from 1 to {}, or auto", kMostMembers));
    return 1;
  }
  return members;
}

void ReadSections(YamlReader& root, JobConfig& job) {
  job.name = root.Optional<std::string>("name", "job");
  if (!IsJobName(job.name)) {
    root.Fail("name",
              "a job's name is that of a folder: at most 128 bytes, no '/', no '.' at its "
              "beginning, no control characters");
  }
  job.steps = root.Required<int64_t>("steps", {.least = 1, .most = kMax});
  job.output = root.OptionalPath("output", "");
  job.init_from = root.OptionalPath("init_from", "");
  job.seed = root.Optional<uint64_t>("seed", 0);
  job.model = ReadModel(root.Child("model"));
  job.data = ReadData(root.Child("data"));
  job.batch = ReadBatch(root.Child("batch"));
  YamlReader parallel = root.OptionalChild("parallel");
  job.parallel.tensor = ReadMembers(parallel);
  job.parallel.divides_sequence =
      parallel.OptionalChoice<bool>("sequence", false, {{"whole", false}, {"divided", true}});
  job.parallel.divides_optimizer =
      parallel.OptionalChoice<bool>("optimizer", false, {{"whole", false}, {"divided", true}});
  job.optimizer =
      ReadOptimizer(root.Child("optimizer"), job.parallel.divides_optimizer ? kSlices : 1);
  job.precision = root.OptionalChoice<DType>("precision", DType::kF32,
                                             {{"fp32", DType::kF32}, {"bf16", DType::kBF16}});
  job.threads = root.Optional<int64_t>("threads", 1, {.least = 1, .most = 1024});
  job.device = ReadDevice(root, job.device);
  job.workers = ReadWorkers(root, job.device);
  job.elastic = ReadElastic(root.OptionalChild("elastic"));
  job.comm = ReadComm(root.OptionalChild("comm"));
  job.on_non_finite = root.OptionalChoice<NonFinitePolicy>(
      "on_non_finite", NonFinitePolicy::kStop,
      {{"stop", NonFinitePolicy::kStop}, {"skip", NonFinitePolicy::kSkip}});
  job.checkpoint = ReadCheckpoint(root.OptionalChild("checkpoint"));
  if (!job.checkpoint.resume.empty() && !job.init_from.empty()) {
    root.FailAmong({"checkpoint.resume", "init_from"},
                   "a run begins from init_from or from checkpoint.resume, not from both",
                   "remove one of them");
  }
  YamlReader validation = root.OptionalChild("validation");
  job.validation.every = validation.Optional<int64_t>("every", 0, {.least = 0, .most = kMax});
  job.validation.batches =
      validation.Optional<int64_t>("batches", 1, {.least = 1, .most = 1 << 20});
  job.metrics.port =
      root.OptionalChild("metrics").Optional<int64_t>("port", 0, {.least = 0, .most = 65535});
  job.determinism = root.OptionalChoice<program::Determinism>(
      "determinism", program::Determinism::kExact,
      {{"exact", program::Determinism::kExact}, {"relaxed", program::Determinism::kRelaxed}});
  job.guarantee = root.OptionalChoice<Guarantee>(
      "guarantee", Guarantee::kNone,
      {{"per-plan", Guarantee::kPerPlan}, {"plan-invariant", Guarantee::kPlanInvariant}});
  ReadPlan(root, job);
}

// Rules between sections.
void CrossCheck(YamlReader& root, const JobConfig& job) {
  if (job.batch.sequence > job.model.max_position_embeddings) {
    root.FailAmong({"batch.sequence", "model.max_position_embeddings"},
                   "batch.sequence " + std::to_string(job.batch.sequence) +
                       " exceeds model.max_position_embeddings " +
                       std::to_string(job.model.max_position_embeddings));
  }
  if (!job.data.text.empty() && job.model.vocab_size < 256) {
    root.FailAmong({"model.vocab_size", "data.text"},
                   "model.vocab_size " + std::to_string(job.model.vocab_size) +
                       " is too small for data.text: text has byte-level tokens 0 to 255",
                   "set model.vocab_size to 256 or more");
  }
  if (job.checkpoint.keep_best &&
      (job.data.validation_fraction <= 0 || job.validation.every == 0)) {
    root.FailAmong({"checkpoint.keep.best", "data.validation_fraction", "validation.every"},
                   "checkpoint.keep.best needs validation losses",
                   "set data.validation_fraction and validation.every");
  }
  if (job.optimizer.warmup_steps > job.steps) {
    root.FailAmong({"optimizer.warmup_steps", "steps"},
                   "optimizer.warmup_steps " + std::to_string(job.optimizer.warmup_steps) +
                       " exceeds steps " + std::to_string(job.steps));
  }
  if (job.elastic.minimum_workers > static_cast<int64_t>(job.workers.size())) {
    root.FailAmong({"elastic.minimum_workers", "workers"},
                   "elastic.minimum_workers " + std::to_string(job.elastic.minimum_workers) +
                       " exceeds the number of workers " + std::to_string(job.workers.size()));
  }
}

// A given plan that the job's model cannot be run by.
Status CheckPlan(YamlDocument& document, const JobConfig& job) {
  if (!job.plan.has_value()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(job.model, GraphOptions(job)));
  const Status valid = program::ValidatePlan(*job.plan, graph);
  return valid.ok() ? valid
                    : document.ErrorAt("plan", document.Root().OptionalPath("plan", "") + ": " +
                                                   valid.message());
}

Result<JobConfig> Read(YamlDocument document) {
  JobConfig job;
  YamlReader root = document.Root();
  ReadSections(root, job);
  CrossCheck(root, job);
  RefuseWithoutEffect(root, job);
  RefuseVoidGuarantee(root, job);
  RefuseParallel(root, job);
  HEDDLE_RETURN_IF_ERROR(document.Finish());
  HEDDLE_RETURN_IF_ERROR(CheckPlan(document, job));
  job.text = document.Emit({.absolute_paths = true});
  job.hash = document.Hash();
  return job;
}

}  // namespace

Result<JobConfig> LoadJob(const std::string& path, const std::vector<std::string>& overrides) {
  Result<YamlDocument> document = YamlDocument::Load(path, overrides);
  if (document.status().code() == StatusCode::kResourceExhausted) {
    return InvalidArgumentError("{}", document.status().message());
  }
  HEDDLE_RETURN_IF_ERROR(document.status());
  return Read(*std::move(document));
}

Result<JobConfig> ParseJob(const std::string& text, const std::string& filename) {
  HEDDLE_ASSIGN_OR_RETURN(YamlDocument document, YamlDocument::Parse(text, filename));
  return Read(std::move(document));
}

}  // namespace heddle::job
