/// \file
/// Hugging Face's safetensors (huggingface/safetensors): a header (safetensors_header.h) and the
/// elements behind it, as one file or as a folder of shards (shards.h).
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/safetensors_header.h"
#include "checkpoint/formats/shards.h"
#include "checkpoint/formats/staged_output.h"

namespace heddle::checkpoint {

namespace {

class SafetensorsFile : public TensorSource {
 public:
  static Result<std::unique_ptr<TensorSource>> Open(const std::string& path) {
    HEDDLE_ASSIGN_OR_RETURN(auto file, OpenRegularFile(path));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t length, HeaderLength(*file));
    std::string header(static_cast<size_t>(length), '\0');
    HEDDLE_RETURN_IF_ERROR(
        file->ReadAt(kSafetensorsPrefix, std::as_writable_bytes(std::span(header))));
    const int64_t data = kSafetensorsPrefix + length;
    auto entries = ParseSafetensorsHeader(header, file->bytes() - data);
    HEDDLE_RETURN_IF_ERROR(entries.status().WithContext("{}", path));
    return std::unique_ptr<TensorSource>(
        new SafetensorsFile(std::move(file), data, *std::move(entries)));
  }

  /// The header's length, which fits the file. Errors: kDataLoss.
  static Result<int64_t> HeaderLength(const SourceFile& file) {
    uint64_t length = 0;
    if (file.bytes() < kSafetensorsPrefix) {
      return DataLossError("{}: {} bytes are no safetensors file", file.name(), file.bytes());
    }
    HEDDLE_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
    if (length > static_cast<uint64_t>(file.bytes() - kSafetensorsPrefix)) {
      return DataLossError("{}: a header of {} bytes in a file of {}: it is cut short", file.name(),
                           length, file.bytes());
    }
    if (length > static_cast<uint64_t>(kSafetensorsHeaderLimit)) {
      return DataLossError("{}: a header of {} bytes, more than {}", file.name(), length,
                           kSafetensorsHeaderLimit);
    }
    return static_cast<int64_t>(length);
  }

  std::string format() const override { return "safetensors"; }
  const std::vector<FileTensor>& tensors() const override { return tensors_; }

  Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const override {
    const FileTensor& wanted = tensors_[tensor];
    HEDDLE_RETURN_IF_ERROR(
        CheckInside(wanted.shape, box).WithContext("{}: tensor '{}'", file_->name(), wanted.name));
    const int64_t element = SizeOf(*wanted.dtype);
    if (static_cast<int64_t>(out.size()) != ElementCount(box.extent) * element) {
      return InvalidArgumentError("{}: tensor '{}': {} bytes of memory for box {}", file_->name(),
                                  wanted.name, out.size(), ToString(box));
    }
    Status status;
    if (!out.empty()) {
      ForEachRun(wanted.shape, WholeBox(wanted.shape), box,
                 [&](int64_t first, int64_t count, int64_t /*global*/) {
                   const auto bytes = static_cast<size_t>(count * element);
                   if (status.ok()) {
                     status = file_->ReadAt(begin_[tensor] + first * element, out.first(bytes));
                   }
                   out = out.subspan(bytes);
                 });
    }
    return status.WithContext("tensor '{}'", wanted.name);
  }

 private:
  SafetensorsFile(std::unique_ptr<SourceFile> file,
                  int64_t data,
                  std::vector<SafetensorsEntry> entries)
      : file_(std::move(file)) {
    for (SafetensorsEntry& entry : entries) {
      begin_.push_back(data + entry.begin);
      tensors_.push_back(std::move(entry.tensor));
    }
  }

  const std::unique_ptr<SourceFile> file_;
  std::vector<FileTensor> tensors_;
  std::vector<int64_t> begin_;  ///< In the file, by tensor.
};

/// The elements come in the caller's order and go to their places in the format's.
class SafetensorsSink : public TensorSink {
 public:
  SafetensorsSink(OutputFile file, std::vector<OutputTensor> tensors, SafetensorsLayout layout)
      : file_(std::move(file)),
        tensors_(std::move(tensors)),
        layout_(std::move(layout)) {
    SkipFinished();
  }

  Status Append(std::span<const std::byte> bytes) override {
    const auto count = static_cast<int64_t>(bytes.size());
    if (next_ == tensors_.size() || count > tensors_[next_].bytes() - written_) {
      return FailedPreconditionError("more elements than the tensors have");
    }
    HEDDLE_RETURN_IF_ERROR(file_.WriteAt(layout_.begin[next_] + written_, bytes));
    written_ += count;
    SkipFinished();
    return Status::Ok();
  }

  Status Finish() override {
    if (next_ != tensors_.size()) {
      return FailedPreconditionError("tensor '{}': elements are missing", tensors_[next_].name);
    }
    return file_.Close();
  }

 private:
  void SkipFinished() {
    while (next_ < tensors_.size() && written_ == tensors_[next_].bytes()) {
      ++next_;
      written_ = 0;
    }
  }

  OutputFile file_;
  const std::vector<OutputTensor> tensors_;
  const SafetensorsLayout layout_;
  size_t next_ = 0;
  int64_t written_ = 0;
};

Result<std::unique_ptr<TensorSink>> CreateFile(const std::string& path,
                                               std::vector<OutputTensor> tensors) {
  HEDDLE_ASSIGN_OR_RETURN(SafetensorsLayout layout, LayOutSafetensors(tensors));
  HEDDLE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  HEDDLE_RETURN_IF_ERROR(file.Append(AsBytes(layout.head)));
  return std::unique_ptr<TensorSink>(
      std::make_unique<SafetensorsSink>(std::move(file), std::move(tensors), std::move(layout)));
}

const FileFormat& Files() {
  static const FileFormat kFormat{.name = "safetensors",
                                  .stem = "model",
                                  .suffix = ".safetensors",
                                  .file_suffixes = {".safetensors"},
                                  .open = SafetensorsFile::Open,
                                  .create = CreateFile};
  return kFormat;
}

/// A folder with such files, or a file whose header could be one: it is then judged when opened.
bool Recognise(const std::string& path) {
  if (IsModelFolder(Files(), path)) {
    return true;
  }
  const auto file = OpenRegularFile(path);
  if (!file.ok() || (*file)->bytes() <= kSafetensorsPrefix) {
    return false;
  }
  std::array<char, kSafetensorsPrefix + 1> head{};
  if (!(*file)->ReadAt(0, std::as_writable_bytes(std::span(head))).ok()) {
    return false;
  }
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  return head.back() == '{' && length < (uint64_t{1} << 40);
}

Result<std::unique_ptr<TensorSource>> Open(const std::string& path) {
  return IsModelFolder(Files(), path) ? OpenModelFolder(Files(), path)
                                      : SafetensorsFile::Open(path);
}

const FormatRegistration kSafetensors{
    {.name = "safetensors",
     .rank = 1,
     .recognise = Recognise,
     .open = Open,
     .create = [](SinkRequest request) { return CreateModel(Files(), std::move(request)); }}};

}  // namespace

}  // namespace heddle::checkpoint
