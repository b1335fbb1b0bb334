/// \file
/// Heddle's own checkpoints as a model file: reading through checkpoint/read/reader.h, writing as
/// one stream (native_sink.h).
#include <utility>

#include "base/system/file.h"
#include "base/thread.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/native_sink.h"
#include "checkpoint/formats/shards.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

class NativeSource : public TensorSource {
 public:
  explicit NativeSource(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {
    for (const TensorRecord& record : reader_->manifest().tensors) {
      const TensorInfo& info = record.info;
      int64_t stored = 0;
      for (const BoxRecord& box : record.boxes) {
        for (const ChunkRecord& chunk : box.chunks) {
          stored += chunk.bytes;
        }
      }
      tensors_.push_back({.name = info.name,
                          .role = info.role,
                          .type = std::string(DTypeName(info.dtype)),
                          .dtype = info.dtype,
                          .shape = info.shape,
                          .bytes = ElementCount(info.shape) * SizeOf(info.dtype),
                          .stored_bytes = stored});
    }
  }

  std::string format() const override { return "native"; }
  const std::vector<FileTensor>& tensors() const override { return tensors_; }
  std::string config() const override { return reader_->manifest().job.model; }
  int64_t step() const override { return reader_->manifest().step; }

  Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const override {
    const FileTensor& wanted = tensors_[tensor];
    const ReadRequest request{
        .key = {.name = wanted.name, .role = wanted.role}, .box = box, .out = out};
    return reader_->ReadBoxes(std::span(&request, 1), Cores());
  }

 private:
  std::unique_ptr<Reader> reader_;
  std::vector<FileTensor> tensors_;
};

/// A folder with a manifest, or one that by its name should have it. What lies at a URL is nothing
/// else.
bool Recognise(const std::string& path) {
  return IsUrl(path) || FileExists(path + "/" + kManifestName) ||
         (FileExists(path + "/.") && StepOfFolder(path).has_value());
}

Result<std::unique_ptr<TensorSource>> Open(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(auto reader, Reader::Open(path));
  if (const std::string& model = reader->manifest().job.model; !model.empty()) {
    HEDDLE_RETURN_IF_ERROR(
        CheckConfig(model).WithContext("{}/{}: the model's config.json", path, kManifestName));
  }
  return std::unique_ptr<TensorSource>(std::make_unique<NativeSource>(std::move(reader)));
}

const FormatRegistration kNative{{.name = "native",
                                  .rank = 0,
                                  .recognise = Recognise,
                                  .open = Open,
                                  .create = CreateNativeSink}};

}  // namespace

}  // namespace heddle::checkpoint
