#include "checkpoint/convert/initial_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/system/file.h"
#include "base/thread.h"
#include "checkpoint/convert/copy.h"
#include "checkpoint/convert/model_view.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/storage/storage.h"
#include "checkpoint/store/import.h"
#include "checkpoint/store/store.h"

namespace heddle::checkpoint {

namespace {

struct Weights {
  std::unique_ptr<TensorSource> source;
  std::map<std::string, size_t> places;  ///< In source->tensors(), by Heddle's name.
};

/// Where two models of equal shapes would compute something else.
Status CheckSameModel(const graph::ModelConfig& theirs, const graph::ModelConfig& ours) {
  const auto check = [](const char* key, auto a, auto b) {
    return a == b ? Status::Ok()
                  : InvalidArgumentError("config.json has {} {}, the job's model {}", key, a, b);
  };
  HEDDLE_RETURN_IF_ERROR(
      check("family", static_cast<int>(theirs.family), static_cast<int>(ours.family)));
  HEDDLE_RETURN_IF_ERROR(
      check("num_attention_heads", theirs.num_attention_heads, ours.num_attention_heads));
  HEDDLE_RETURN_IF_ERROR(
      check("num_key_value_heads", theirs.num_key_value_heads, ours.num_key_value_heads));
  HEDDLE_RETURN_IF_ERROR(check("a norm's epsilon of", theirs.norm_epsilon, ours.norm_epsilon));
  HEDDLE_RETURN_IF_ERROR(check("rope_theta", theirs.rope_theta, ours.rope_theta));
  return check("tie_word_embeddings", theirs.tie_word_embeddings, ours.tie_word_embeddings);
}

Result<Weights> OpenWeights(const std::string& path,
                            const graph::ModelConfig& model,
                            const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(auto opened, OpenModel(path));
  if (const std::string text = opened->config(); !text.empty()) {
    const auto config = graph::ParseModelConfig(text);
    HEDDLE_RETURN_IF_ERROR(config.status().WithContext("{}: config.json", path));
    HEDDLE_RETURN_IF_ERROR(CheckSameModel(*config, model).WithContext("{}", path));
  }
  auto view = ViewAs(std::move(opened), Naming::kHeddle);
  HEDDLE_RETURN_IF_ERROR(view.status().WithContext("{}", path));
  for (const std::string& note : view->notes) {
    LogInfo("{}: {}", path, note);
  }
  Weights weights{.source = std::move(view->source), .places = {}};
  for (size_t i = 0; i < weights.source->tensors().size(); ++i) {
    weights.places.emplace(weights.source->tensors()[i].name, i);
  }
  size_t wanted = 0;
  for (const TensorInfo& info : expected) {
    if (info.role != kWeightRole) {
      continue;
    }
    ++wanted;
    const auto place = weights.places.find(info.name);
    if (place == weights.places.end()) {
      return InvalidArgumentError("{}: has no tensor '{}' of the job's model{}", path, info.name,
                                  view->renamed ? "" : " (" + view->notes.front() + ")");
    }
    const FileTensor& tensor = weights.source->tensors()[place->second];
    if (tensor.shape != info.shape) {
      return InvalidArgumentError("{}: tensor '{}' has shape {}, the job's model {}", path,
                                  info.name, ToString(tensor.shape), ToString(info.shape));
    }
    if (!tensor.dtype || !CanCast(*tensor.dtype, info.dtype)) {
      return InvalidArgumentError("{}: tensor '{}': elements of type {} do not become {}", path,
                                  info.name, tensor.type, DTypeName(info.dtype));
    }
  }
  if (wanted != weights.places.size()) {
    return InvalidArgumentError("{}: has {} tensors, the job's model {}", path,
                                weights.places.size(), wanted);
  }
  return weights;
}

Status AppendZeros(const TensorInfo& info, TensorSink& sink) {
  constexpr int64_t kMax = int64_t{1} << 20;
  const int64_t element = SizeOf(info.dtype);
  int64_t left = ElementCount(info.shape) * element;
  const Bytes zeros(static_cast<size_t>(std::min(left, kMax)));
  while (left > 0) {
    const int64_t now = std::min<int64_t>(left, kMax);
    HEDDLE_RETURN_IF_ERROR(sink.Append(std::span(zeros).first(static_cast<size_t>(now))));
    left -= now;
  }
  return Status::Ok();
}

Status WriteStepZero(const Weights& weights,
                     const std::string& path,
                     const graph::ModelConfig& model,
                     const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(const Format* native, FindFormat("native"));
  SinkRequest request;
  request.path = path;
  request.config = graph::ModelConfigJson(model);
  request.threads = Cores();
  for (const TensorInfo& info : expected) {
    request.tensors.push_back(
        {.name = info.name, .role = info.role, .dtype = info.dtype, .shape = info.shape});
  }
  HEDDLE_ASSIGN_OR_RETURN(auto sink, native->create(std::move(request)));
  for (const TensorInfo& info : expected) {
    HEDDLE_RETURN_IF_ERROR(
        info.role == kWeightRole
            ? CopyTensor(*weights.source, weights.places.at(info.name), info.dtype, *sink, {})
            : AppendZeros(info, *sink));
  }
  return sink->Finish();
}

}  // namespace

Status CheckInitialWeights(const std::string& source,
                           const graph::ModelConfig& model,
                           const std::vector<TensorInfo>& expected) {
  return OpenWeights(source, model, expected).status();
}

Status WriteInitialState(const std::string& source,
                         const std::string& root,
                         const graph::ModelConfig& model,
                         const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(const auto entries, List(root));
  if (!entries.empty()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const Weights weights, OpenWeights(source, model, expected));
  if (IsUrl(root)) {  // Written here, then brought there.
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/" + StepFolderName(0);
    HEDDLE_RETURN_IF_ERROR(WriteStepZero(weights, path, model, expected));
    return Import(path, root, expected).status();
  }
  HEDDLE_RETURN_IF_ERROR(MakeFolders(root));
  return WriteStepZero(weights, root + "/" + StepFolderName(0), model, expected);
}

}  // namespace heddle::checkpoint
