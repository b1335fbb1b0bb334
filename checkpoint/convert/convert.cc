#include "checkpoint/convert/convert.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/convert/copy.h"
#include "checkpoint/convert/derive.h"
#include "checkpoint/convert/identity.h"
#include "checkpoint/convert/model_view.h"
#include "checkpoint/convert/target.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/shards.h"

namespace heddle::checkpoint {

namespace {

constexpr const char* kNative = "native";

DType TypeOf(const FileTensor& tensor, const ConvertOptions& options) {
  const bool weight = tensor.role.empty() || tensor.role == kWeightRole;
  return options.dtype && weight && CanCast(*tensor.dtype, *options.dtype) ? *options.dtype
                                                                           : *tensor.dtype;
}

/// config.json says the weights' type, under a name that changed with transformers 5.
Result<std::string> ConfigWith(const std::string& config, DType dtype) {
  HEDDLE_RETURN_IF_ERROR(CheckConfig(config).WithContext("config.json"));
  auto json = nlohmann::ordered_json::parse(config);  // Keeps the order of the keys.
  for (const char* const key : {"torch_dtype", "dtype"}) {
    if (json.contains(key)) {
      json[key] = dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
    }
  }
  return json.dump(2) + "\n";
}

/// The model under the target's names. Moments only travel between native checkpoints.
Result<ModelView> OpenFor(const std::string& source, const std::string& format) {
  HEDDLE_ASSIGN_OR_RETURN(auto opened, OpenModel(source));
  if (opened->format() == kNative && format == kNative) {
    return ModelView{.source = std::move(opened), .notes = {}, .renamed = true};
  }
  auto view = ViewAs(std::move(opened), format == kNative ? Naming::kHeddle : Naming::kHuggingFace);
  HEDDLE_RETURN_IF_ERROR(view.status().WithContext("{}", source));
  return view;
}

void Note(const ConvertOptions& options, const std::string& line) {
  if (options.note && !line.empty()) {
    options.note(line);
  }
}

/// What is to be written, from the view of `source`.
Result<SinkRequest> RequestFor(const std::string& source,
                               const std::string& target,
                               const TensorSource& view,
                               const ConvertOptions& options) {
  SinkRequest request;
  request.path = target;
  request.replace = options.overwrite;
  request.config = view.config();
  if (options.dtype && !request.config.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(request.config, ConfigWith(request.config, *options.dtype));
  }
  request.max_shard_bytes = options.max_shard_bytes;
  request.step = view.step();
  request.threads = options.threads;
  for (const FileTensor& tensor : view.tensors()) {
    if (!tensor.dtype) {
      return InvalidArgumentError("{}: tensor '{}': elements of type {} are not supported", source,
                                  tensor.name, tensor.type);
    }
    request.tensors.push_back({.name = tensor.name,
                               .role = tensor.role.empty() ? kWeightRole : tensor.role,
                               .dtype = TypeOf(tensor, options),
                               .shape = tensor.shape});
  }
  return request;
}

/// Equal for requests that write the same bytes.
Result<std::string> IdentityOf(const std::string& source,
                               const SinkRequest& request,
                               const std::string& format) {
  HEDDLE_ASSIGN_OR_RETURN(std::string fingerprint, FileFingerprint(source));
  fingerprint +=
      fmt::format("{} {} {}\n{}\n", format, request.max_shard_bytes, request.step, request.config);
  for (const OutputTensor& tensor : request.tensors) {
    fingerprint += fmt::format("{} {} {} {}\n", tensor.name, tensor.role, DTypeName(tensor.dtype),
                               ToString(tensor.shape));
  }
  return Hash128Hex(AsBytes(fingerprint));
}

}  // namespace

Result<ConvertSummary> Convert(const std::string& source,
                               const std::string& target,
                               const ConvertOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const Format* format, FindFormat(options.to));
  HEDDLE_RETURN_IF_ERROR(CheckTarget(source, target, options.overwrite));
  HEDDLE_ASSIGN_OR_RETURN(const ModelView view, OpenFor(source, options.to));
  for (const std::string& note : view.notes) {
    Note(options, note);
  }
  HEDDLE_ASSIGN_OR_RETURN(SinkRequest request, RequestFor(source, target, *view.source, options));
  if (options.to == kNative) {
    HEDDLE_RETURN_IF_ERROR(MarkDerived(*view.source, request.tensors));
  }
  HEDDLE_ASSIGN_OR_RETURN(request.identity, IdentityOf(source, request, options.to));
  const std::vector<OutputTensor> tensors = request.tensors;
  HEDDLE_ASSIGN_OR_RETURN(auto sink, format->create(std::move(request)));
  Note(options, sink->history());
  ConvertSummary summary;
  int64_t finished = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ++summary.tensors;
    summary.bytes += tensors[i].bytes();
    finished += i < sink->finished() ? tensors[i].bytes() : 0;
  }
  ProgressCount progress(options.progress, summary.bytes, finished);
  for (size_t i = sink->finished(); i < tensors.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(CopyTensor(*view.source, i, tensors[i].dtype, *sink,
                                      [&](int64_t bytes) { progress.Add(bytes); }));
  }
  // Long after the first check, another process may have put something there.
  if (options.overwrite) {
    HEDDLE_RETURN_IF_ERROR(CheckTarget(source, target, options.overwrite));
  }
  HEDDLE_RETURN_IF_ERROR(sink->Finish());
  return summary;
}

}  // namespace heddle::checkpoint
