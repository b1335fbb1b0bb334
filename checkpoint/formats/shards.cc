#include "checkpoint/formats/shards.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/system/file.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/strict_json.h"
#include "checkpoint/formats/staged_output.h"

namespace heddle::checkpoint {

namespace {

using Json = nlohmann::json;

/// The index has three levels; other tools may add to its metadata.
constexpr int kMaxIndexDepth = 8;

std::string IndexPath(const FileFormat& format, const std::string& folder) {
  return fmt::format("{}/{}{}.index.json", folder, format.stem, format.suffix);
}

std::string SinglePath(const FileFormat& format, const std::string& folder) {
  return fmt::format("{}/{}{}", folder, format.stem, format.suffix);
}

/// The tensors of several files as one model.
class FolderSource : public TensorSource {
 public:
  FolderSource(std::string format, std::string config)
      : format_(std::move(format)),
        config_(std::move(config)) {}

  void Add(std::unique_ptr<TensorSource> file) {
    for (size_t t = 0; t < file->tensors().size(); ++t) {
      places_.push_back({.file = files_.size(), .tensor = t});
    }
    files_.push_back(std::move(file));
  }

  /// Every file was added. Errors: kDataLoss when two hold a tensor of the same name, or all of
  /// them more than a model has.
  Status Sort() {
    if (places_.size() > kMaxTensors) {
      return DataLossError("more than {} tensors", kMaxTensors);
    }
    const auto key = [&](const Place& place) {
      const FileTensor& tensor = files_[place.file]->tensors()[place.tensor];
      return std::tie(tensor.role, tensor.name);
    };
    std::sort(places_.begin(), places_.end(),
              [&](const Place& left, const Place& right) { return key(left) < key(right); });
    for (const Place& place : places_) {
      const FileTensor& tensor = files_[place.file]->tensors()[place.tensor];
      if (!tensors_.empty() && tensors_.back().name == tensor.name &&
          tensors_.back().role == tensor.role) {
        return DataLossError("tensor '{}' is in two files", tensor.name);
      }
      tensors_.push_back(tensor);
    }
    return Status::Ok();
  }

  std::string format() const override { return format_; }
  const std::vector<FileTensor>& tensors() const override { return tensors_; }
  std::string config() const override { return config_; }
  Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const override {
    return files_[places_[tensor].file]->Read(places_[tensor].tensor, box, out);
  }

 private:
  struct Place {
    size_t file = 0;
    size_t tensor = 0;
  };

  std::string format_;
  std::string config_;
  std::vector<std::unique_ptr<TensorSource>> files_;
  std::vector<Place> places_;  ///< The place of each of tensors_.
  std::vector<FileTensor> tensors_;
};

/// Empty when there is none. A link into nowhere is one that cannot be read.
Result<std::string> ReadConfig(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    return std::string();
  }
  HEDDLE_RETURN_IF_ERROR(CheckNoPlaceholder(path));
  HEDDLE_ASSIGN_OR_RETURN(std::string config, ReadFile(path, kMaxConfigBytes));
  HEDDLE_RETURN_IF_ERROR(CheckConfig(config).WithContext("{}", path));
  return config;
}

std::set<std::string> NamesIn(const TensorSource& file) {
  std::set<std::string> names;
  for (const FileTensor& tensor : file.tensors()) {
    names.insert(tensor.name);
  }
  return names;
}

Status AddShards(const FileFormat& format, const std::string& folder, FolderSource& source) {
  const std::string index = IndexPath(format, folder);
  HEDDLE_ASSIGN_OR_RETURN(const auto weight_map, ReadShardIndex(index));
  std::map<std::string, std::vector<std::string>> names_of;
  for (const auto& [name, file] : weight_map) {
    names_of[file].push_back(name);
  }
  for (const auto& [file, names] : names_of) {
    const std::string path = folder + "/" + file;
    if (!FileExists(path)) {
      return DataLossError("{}: shard {} is missing", index, file);
    }
    HEDDLE_RETURN_IF_ERROR(CheckNoPlaceholder(path));
    HEDDLE_ASSIGN_OR_RETURN(auto shard, format.open(path));
    const std::set<std::string> held = NamesIn(*shard);
    for (const std::string& name : names) {
      if (!held.contains(name)) {
        return DataLossError("{}: has no tensor '{}', which {} places there", path, name, index);
      }
    }
    source.Add(std::move(shard));
  }
  return Status::Ok();
}

/// Fills one file after the other in a staged file or folder.
class ShardedSink : public TensorSink {
 public:
  /// `begins`: where each shard does, as SplitIntoShards says; all but the last may be finished.
  ShardedSink(FileFormat format,
              SinkRequest request,
              StagedOutput staged,
              bool is_folder,
              std::vector<size_t> begins)
      : format_(std::move(format)),
        request_(std::move(request)),
        staged_(std::move(staged)),
        is_folder_(is_folder),
        begins_(std::move(begins)),
        kept_(staged_.finished().size()),
        shard_(kept_) {}

  /// Opens the first file that is not finished, so that Append always has one.
  Status Open() {
    const std::string name = ShardName(format_, shard_ + 1, begins_.size());
    const auto begin = request_.tensors.begin() + static_cast<ptrdiff_t>(begins_[shard_]);
    const auto end = shard_ + 1 < begins_.size()
                         ? request_.tensors.begin() + static_cast<ptrdiff_t>(begins_[shard_ + 1])
                         : request_.tensors.end();
    std::vector<OutputTensor> tensors(begin, end);
    missing_ = 0;
    for (const OutputTensor& tensor : tensors) {
      missing_ += tensor.bytes();
    }
    HEDDLE_ASSIGN_OR_RETURN(
        file_, format_.create(is_folder_ ? staged_.temporary() + "/" + name : staged_.temporary(),
                              std::move(tensors)));
    return Status::Ok();
  }

  size_t finished() const override { return begins_[kept_]; }
  std::string history() const override { return staged_.history(); }

  Status Append(std::span<const std::byte> bytes) override {
    if (!bytes.empty() && missing_ == 0 && shard_ + 1 < begins_.size()) {
      HEDDLE_RETURN_IF_ERROR(NextShard());
    }
    HEDDLE_RETURN_IF_ERROR(file_->Append(bytes));
    missing_ -= static_cast<int64_t>(bytes.size());
    return Status::Ok();
  }

  Status Finish() override {
    if (shard_ + 1 < begins_.size()) {  // Every shard but the first has elements.
      return FailedPreconditionError("{}: elements of {} shards are missing", request_.path,
                                     begins_.size() - shard_ - (missing_ == 0 ? 1 : 0));
    }
    HEDDLE_RETURN_IF_ERROR(file_->Finish());
    if (is_folder_) {
      HEDDLE_RETURN_IF_ERROR(WriteBeside());
    }
    return staged_.Commit(request_.replace);
  }

 private:
  Status NextShard() {
    HEDDLE_RETURN_IF_ERROR(file_->Finish());
    if (!request_.identity.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(
          FileRecord file,
          DescribeFile(staged_.temporary(), ShardName(format_, shard_ + 1, begins_.size())));
      HEDDLE_RETURN_IF_ERROR(staged_.Record(std::move(file), ""));
    }
    ++shard_;
    return Open();
  }

  /// The index and config.json.
  Status WriteBeside() {
    if (begins_.size() > 1) {
      std::map<std::string, std::string> weight_map;
      int64_t total = 0;
      size_t shard = 0;
      for (size_t t = 0; t < request_.tensors.size(); ++t) {
        shard += shard + 1 < begins_.size() && begins_[shard + 1] == t ? 1 : 0;
        weight_map.emplace(request_.tensors[t].name, ShardName(format_, shard + 1, begins_.size()));
        total += request_.tensors[t].bytes();
      }
      HEDDLE_ASSIGN_OR_RETURN(const std::string index, EncodeShardIndex(weight_map, total));
      HEDDLE_RETURN_IF_ERROR(WriteText(IndexPath(format_, staged_.temporary()), index));
    }
    return request_.config.empty()
               ? Status::Ok()
               : WriteText(staged_.temporary() + "/config.json", request_.config);
  }

  static Status WriteText(const std::string& path, const std::string& text) {
    HEDDLE_ASSIGN_OR_RETURN(auto file, OutputFile::Create(path));
    HEDDLE_RETURN_IF_ERROR(file.Append(AsBytes(text)));
    return file.Close();
  }

  const FileFormat format_;
  const SinkRequest request_;
  StagedOutput staged_;
  const bool is_folder_;
  const std::vector<size_t> begins_;
  const size_t kept_;    ///< Shards that an earlier process finished.
  size_t shard_;         ///< The shard that is being written.
  int64_t missing_ = 0;  ///< Bytes of that shard still to come.
  std::unique_ptr<TensorSink> file_;
};

}  // namespace

bool IsModelFolder(const FileFormat& format, const std::string& path) {
  return FileExists(SinglePath(format, path)) || FileExists(IndexPath(format, path));
}

Result<std::unique_ptr<TensorSource>> OpenModelFolder(const FileFormat& format,
                                                      const std::string& folder) {
  HEDDLE_ASSIGN_OR_RETURN(std::string config, ReadConfig(folder + "/config.json"));
  auto source = std::make_unique<FolderSource>(format.name, std::move(config));
  if (const std::string single = SinglePath(format, folder); FileExists(single)) {
    HEDDLE_RETURN_IF_ERROR(CheckNoPlaceholder(single));
    HEDDLE_ASSIGN_OR_RETURN(auto file, format.open(single));
    source->Add(std::move(file));
  } else {
    HEDDLE_RETURN_IF_ERROR(AddShards(format, folder, *source));
  }
  HEDDLE_RETURN_IF_ERROR(source->Sort().WithContext("{}", folder));
  return std::unique_ptr<TensorSource>(std::move(source));
}

Result<std::unique_ptr<TensorSink>> CreateModel(const FileFormat& format, SinkRequest request) {
  std::set<std::string_view> names;
  for (const OutputTensor& tensor : request.tensors) {
    if (!names.insert(tensor.name).second) {
      return InvalidArgumentError("tensor '{}' is to be written twice", tensor.name);
    }
  }
  const bool is_folder =
      std::none_of(format.file_suffixes.begin(), format.file_suffixes.end(),
                   [&](const std::string& suffix) { return request.path.ends_with(suffix); });
  std::vector<size_t> begins = {0};
  Attempt attempt{.identity = request.identity, .files = {}};
  if (is_folder) {
    begins = SplitIntoShards(request.tensors, request.max_shard_bytes);
    for (size_t shard = 1; shard < begins.size(); ++shard) {  // The last one ends with all.
      attempt.files.push_back(ShardName(format, shard, begins.size()));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(auto staged, is_folder
                                           ? StagedOutput::Folder(request.path, std::move(attempt))
                                           : StagedOutput::File(request.path));
  auto sink = std::make_unique<ShardedSink>(format, std::move(request), std::move(staged),
                                            is_folder, std::move(begins));
  HEDDLE_RETURN_IF_ERROR(sink->Open());
  return std::unique_ptr<TensorSink>(std::move(sink));
}

Status CheckConfig(std::string_view text) {
  constexpr int kDepth = 16;
  HEDDLE_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, kDepth));
  return json.is_object() ? Status::Ok() : DataLossError("expected an object");
}

Result<std::map<std::string, std::string>> ReadShardIndex(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(CheckNoPlaceholder(path));
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  const auto json = ParseStrictJson(text, kMaxIndexDepth);
  HEDDLE_RETURN_IF_ERROR(json.status().WithContext("{}", path));
  const auto weight_map = json->is_object() ? json->find("weight_map") : json->end();
  if (weight_map == json->end() || !weight_map->is_object() || weight_map->empty()) {
    return DataLossError("{}: has no weight_map with tensors", path);
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : weight_map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get_ref<const std::string&>())) {
      return DataLossError("{}: the file of tensor '{}' is not the name of a file beside it", path,
                           name);
    }
    files.emplace(name, file.get<std::string>());
  }
  return files;
}

Result<std::string> EncodeShardIndex(const std::map<std::string, std::string>& weight_map,
                                     int64_t total_bytes) {
  try {
    const Json json = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
    return json.dump(2) + "\n";
  } catch (const Json::exception& error) {
    return InvalidArgumentError("the names of the tensors make no index: {}", error.what());
  }
}

std::string ShardName(const FileFormat& format, size_t number, size_t count) {
  return count == 1 ? format.stem + format.suffix
                    : fmt::format("{}-{:05}-of-{:05}{}", format.stem, number, count, format.suffix);
}

std::vector<size_t> SplitIntoShards(std::span<const OutputTensor> tensors, int64_t max_bytes) {
  std::vector<size_t> begins = {0};
  int64_t bytes = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    // One without elements always fits: so every shard but the first has some.
    if (t > begins.back() && tensors[t].bytes() > 0 && bytes + tensors[t].bytes() > max_bytes) {
      begins.push_back(t);
      bytes = 0;
    }
    bytes += tensors[t].bytes();
  }
  return begins;
}

}  // namespace heddle::checkpoint
