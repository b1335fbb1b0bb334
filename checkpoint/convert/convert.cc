#include "checkpoint/convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/convert/copy.h"
#include "checkpoint/convert/model_view.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNative = "native";

/// What may be replaced: a model, or an empty folder. Anything else is most likely a mistake.
Status CheckTarget(const std::string& target, bool overwrite) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error))) {
    return Status::Ok();
  }
  if (!overwrite) {
    return AlreadyExistsError("{} exists; --overwrite replaces it", target);
  }
  if (fs::is_directory(target, error) && fs::is_empty(target, error)) {
    return Status::Ok();
  }
  for (const Format& format : Formats()) {
    if (format.recognise(target)) {
      return Status::Ok();
    }
  }
  return AlreadyExistsError("{} exists and is no model: it is not replaced", target);
}

/// Keeps what was at a path until it has been replaced.
class Replaced {
 public:
  explicit Replaced(std::string path)
      : path_(std::move(path)),
        aside_(fmt::format("{}/.{}.replaced-{}",
                           FolderOf(path_),
                           fs::path(path_).filename().string(),
                           ::getpid())) {}
  ~Replaced() {
    std::error_code error;
    if (moved_) {
      fs::rename(aside_, path_, error);
    }
  }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

  Status MoveAside() {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path_, error))) {
      return Status::Ok();
    }
    fs::rename(path_, aside_, error);
    moved_ = !error;
    return moved_ ? Status::Ok() : ErrnoError(error.value(), "replace " + path_);
  }
  void Remove() {
    std::error_code error;
    if (std::exchange(moved_, false)) {
      fs::remove_all(aside_, error);
    }
  }

 private:
  const std::string path_;
  const std::string aside_;
  bool moved_ = false;
};

DType TypeOf(const FileTensor& tensor, const ConvertOptions& options) {
  const bool weight = tensor.role.empty() || tensor.role == kWeightRole;
  return options.dtype && weight && CanCast(*tensor.dtype, *options.dtype) ? *options.dtype
                                                                           : *tensor.dtype;
}

/// config.json says the weights' type, under a name that changed with transformers 5.
std::string ConfigWith(const std::string& config, DType dtype) {
  auto json = nlohmann::ordered_json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return config;
  }
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

}  // namespace

Result<ConvertSummary> Convert(const std::string& source,
                               const std::string& target,
                               const ConvertOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const Format* format, FindFormat(options.to));
  HEDDLE_RETURN_IF_ERROR(CheckTarget(target, options.overwrite));
  HEDDLE_ASSIGN_OR_RETURN(const ModelView view, OpenFor(source, options.to));
  ConvertSummary summary;
  summary.notes = view.notes;
  SinkRequest request;
  request.path = fs::path(target).lexically_normal().string();
  while (request.path.size() > 1 && request.path.back() == '/') {
    request.path.pop_back();
  }
  request.config =
      options.dtype ? ConfigWith(view.source->config(), *options.dtype) : view.source->config();
  request.max_shard_bytes = options.max_shard_bytes;
  request.step = view.source->step();
  request.threads = options.threads;
  for (const FileTensor& tensor : view.source->tensors()) {
    if (!tensor.dtype) {
      return InvalidArgumentError("{}: tensor '{}': elements of type {} are not supported", source,
                                  tensor.name, tensor.type);
    }
    request.tensors.push_back({.name = tensor.name,
                               .role = tensor.role.empty() ? kWeightRole : tensor.role,
                               .dtype = TypeOf(tensor, options),
                               .shape = tensor.shape});
    summary.bytes += request.tensors.back().bytes();
  }
  summary.tensors = static_cast<int64_t>(request.tensors.size());
  Replaced replaced(request.path);
  std::vector<DType> dtypes;
  for (const OutputTensor& tensor : request.tensors) {
    dtypes.push_back(tensor.dtype);
  }
  HEDDLE_ASSIGN_OR_RETURN(auto sink, format->create(std::move(request)));
  int64_t done = 0;
  const auto progress = [&](int64_t bytes) {
    done += bytes;
    if (options.progress) {
      options.progress(done, summary.bytes);
    }
  };
  for (size_t i = 0; i < dtypes.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(CopyTensor(*view.source, i, dtypes[i], *sink, progress));
  }
  HEDDLE_RETURN_IF_ERROR(replaced.MoveAside());
  HEDDLE_RETURN_IF_ERROR(sink->Finish());
  replaced.Remove();
  return summary;
}

}  // namespace heddle::checkpoint
