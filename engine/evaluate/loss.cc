#include "engine/evaluate/loss.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/convert/cast.h"
#include "checkpoint/convert/model_view.h"
#include "engine/graph/models/model.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/plan.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/executor.h"

namespace heddle::evaluate {

namespace {

/// Tokens that one pass computes at a time: enough for fast matrix products, little memory.
constexpr int64_t kTokensAtOnce = 2048;

/// Windows of one length, `batch` of them a pass.
struct Pass {
  int64_t first_token = 0;
  int64_t windows = 0;
  int64_t length = 0;  ///< Tokens of a window, the first one included.
  int64_t batch = 1;
};

std::vector<Pass> PlanPasses(int64_t tokens, int64_t context) {
  const int64_t whole = tokens / context;
  const int64_t batch =
      std::clamp<int64_t>(kTokensAtOnce / context, 1, std::max<int64_t>(whole, 1));
  const int64_t batched = whole / batch * batch;
  std::vector<Pass> passes = {
      {.first_token = 0, .windows = batched, .length = context, .batch = batch},
      {.first_token = batched * context, .windows = whole - batched, .length = context},
      {.first_token = whole * context, .windows = 1, .length = tokens % context}};
  std::erase_if(passes, [](const Pass& pass) { return pass.windows == 0 || pass.length < 2; });
  return passes;
}

Status ReadWeights(const checkpoint::TensorSource& weights,
                   const graph::Graph& graph,
                   runtime::ParameterState& state) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < weights.tensors().size(); ++i) {
    places.emplace(weights.tensors()[i].name, i);
  }
  std::vector<graph::ParameterId> all;
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    all.push_back(static_cast<graph::ParameterId>(i));
  }
  HEDDLE_RETURN_IF_ERROR(state.Hold(all));
  for (const graph::ParameterId id : all) {
    const graph::Parameter& parameter = graph.parameter(id);
    const auto place = places.find(parameter.name);
    if (place == places.end()) {
      return InvalidArgumentError("the model has no tensor '{}'", parameter.name);
    }
    const checkpoint::FileTensor& tensor = weights.tensors()[place->second];
    if (tensor.shape != parameter.shape || !tensor.dtype) {
      return InvalidArgumentError("tensor '{}' is {} {}, {} expected", tensor.name, tensor.type,
                                  ToString(tensor.shape), ToString(parameter.shape));
    }
    Bytes read(static_cast<size_t>(tensor.bytes));
    HEDDLE_RETURN_IF_ERROR(weights.Read(place->second, WholeBox(tensor.shape), read));
    const Box whole = WholeBox(parameter.shape);
    std::span<std::byte> to = state.InPlace(id, program::StateRole::kMaster, whole);
    Bytes copy;
    if (to.empty()) {
      copy.resize(static_cast<size_t>(ElementCount(whole.extent) * SizeOf(graph.master_dtype())));
      to = copy;
    }
    HEDDLE_RETURN_IF_ERROR(checkpoint::Cast(read, *tensor.dtype, to, graph.master_dtype())
                               .WithContext("tensor '{}'", tensor.name));
    HEDDLE_RETURN_IF_ERROR(state.Write(id, program::StateRole::kMaster, whole, to));
  }
  state.Refresh();
  return Status::Ok();
}

/// Reads windows of one pass as the executor's samples.
runtime::SampleReader ReaderOf(const data::Corpus& corpus, const Pass& pass) {
  return [&corpus, pass](int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
    const int64_t first = pass.first_token + sample * pass.length;
    HEDDLE_RETURN_IF_ERROR(corpus.Read(first, tokens));
    return corpus.Read(first + 1, targets);
  };
}

/// A model on one device, for the windows of one pass after the other.
class Evaluator {
 public:
  Evaluator(const checkpoint::TensorSource& weights, runtime::Device& device)
      : weights_(weights),
        device_(device) {}

  /// Sum of the losses of the pass's predicted tokens. `done` is called after each batch.
  Result<double> Run(const graph::ModelConfig& config,
                     const Pass& pass,
                     const data::Corpus& corpus,
                     const std::function<void(int64_t)>& done) {
    auto next = std::make_unique<graph::Graph>();
    HEDDLE_ASSIGN_OR_RETURN(
        *next, graph::BuildEvaluationGraph(
                   config, {.microbatch_size = pass.batch, .sequence_length = pass.length - 1}));
    auto state = std::make_unique<runtime::ParameterState>(*next, device_);
    if (state_ == nullptr) {
      HEDDLE_RETURN_IF_ERROR(ReadWeights(weights_, *next, *state));
    } else {
      state->Share(*state_, state_->parameters());
    }
    state_ = std::move(state);
    graph_ = std::move(next);
    const auto plan =
        program::SingleWorkerPlan("evaluate", static_cast<int>(graph_->segments.size()), 1);
    HEDDLE_ASSIGN_OR_RETURN(const program::Program program, program::Lower(*graph_, plan, 0));
    runtime::Executor executor({.graph = graph_.get(),
                                .program = &program,
                                .state = state_.get(),
                                .group = nullptr,
                                .shared = nullptr,
                                .device = &device_,
                                .read_sample = ReaderOf(corpus, pass),
                                .microbatches = 1});
    double loss = 0;
    for (int64_t window = 0; window < pass.windows; window += pass.batch) {
      HEDDLE_RETURN_IF_ERROR(executor.ComputeGradients(1, window));
      HEDDLE_ASSIGN_OR_RETURN(const runtime::VoteOutcome outcome, executor.Vote(1));
      loss += outcome.loss;
      done(pass.batch * (pass.length - 1));
    }
    return loss;
  }

 private:
  const checkpoint::TensorSource& weights_;
  runtime::Device& device_;
  std::unique_ptr<graph::Graph> graph_;
  std::unique_ptr<runtime::ParameterState> state_;
};

}  // namespace

Result<Loss> EvaluateLoss(const checkpoint::TensorSource& weights, const LossRequest& request) {
  if (weights.config().empty()) {
    return InvalidArgumentError("the model has no config.json: what it computes is not known");
  }
  const auto parsed = graph::ParseModelConfig(weights.config());
  HEDDLE_RETURN_IF_ERROR(parsed.status().WithContext("config.json"));
  const graph::ModelConfig& config = *parsed;
  const int64_t longest = config.max_position_embeddings;
  const int64_t context = request.context == 0 ? longest : request.context;
  if (context < 2 || context > longest) {
    return InvalidArgumentError("a context of {} tokens: the model takes 2 to {}", context,
                                longest);
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const auto corpus,
      data::Corpus::Open(request.format, {{.path = request.data}}, config.vocab_size));
  if (corpus->size() < 2) {
    return InvalidArgumentError("{}: one token cannot be predicted from those before it",
                                request.data);
  }
  runtime::WarnAboutBlas();
  runtime::KeepFreedMemory();
  runtime::SetThreads(request.threads);
  const auto passes = PlanPasses(corpus->size(), context);
  int64_t all = 0;
  for (const Pass& pass : passes) {
    all += pass.windows * (pass.length - 1);
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto device, runtime::OpenDevice("cpu", {}));
  Evaluator evaluator(weights, *device);
  Loss loss;
  for (const Pass& pass : passes) {
    HEDDLE_ASSIGN_OR_RETURN(const double sum,
                            evaluator.Run(config, pass, *corpus, [&](int64_t tokens) {
                              loss.tokens += tokens;
                              if (request.progress) {
                                request.progress(loss.tokens, all);
                              }
                            }));
    loss.mean += sum;
  }
  loss.mean /= static_cast<double>(loss.tokens);
  return loss;
}

}  // namespace heddle::evaluate
