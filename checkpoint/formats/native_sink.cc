#include "checkpoint/formats/native_sink.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/formats/native_files.h"
#include "checkpoint/formats/shards.h"

namespace heddle::checkpoint {

namespace {

class NativeSink : public TensorSink {
 public:
  NativeSink(std::unique_ptr<NativeFiles> files, size_t finished)
      : files_(std::move(files)),
        finished_(finished) {}

  size_t finished() const override { return finished_; }
  std::string history() const override { return files_->history(); }
  Status Append(std::span<const std::byte> bytes) override { return files_->Append(bytes); }
  Status Finish() override { return files_->Finish(); }

 private:
  const std::unique_ptr<NativeFiles> files_;
  const size_t finished_;
};

}  // namespace

Result<std::unique_ptr<TensorSink>> CreateNativeSink(SinkRequest request) {
  const std::vector<size_t> begins = SplitIntoShards(request.tensors, request.max_shard_bytes);
  NativeRequest native;
  native.path = std::move(request.path);
  native.replace = request.replace;
  native.identity = std::move(request.identity);
  native.step = request.step;
  native.job.model = std::move(request.config);
  native.threads = request.threads;
  for (const OutputTensor& tensor : request.tensors) {
    native.tensors.push_back(
        {.name = tensor.name, .role = tensor.role, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  for (size_t file = 0; file < begins.size(); ++file) {
    const size_t end = file + 1 < begins.size() ? begins[file + 1] : native.tensors.size();
    FilePlan plan{.name = begins.size() == 1
                              ? "model.g0.h5"
                              : fmt::format("model-{:05}-of-{:05}.g0.h5", file + 1, begins.size()),
                  .boxes = {}};
    for (size_t t = begins[file]; t < end; ++t) {
      plan.boxes.push_back({.tensor = t,
                            .box = WholeBox(native.tensors[t].shape),
                            .derived_from = request.tensors[t].derived_from});
    }
    native.files.push_back(std::move(plan));
  }
  HEDDLE_ASSIGN_OR_RETURN(auto files, NativeFiles::Create(std::move(native)));
  const size_t finished =
      files->finished() < begins.size() ? begins[files->finished()] : request.tensors.size();
  return std::unique_ptr<TensorSink>(std::make_unique<NativeSink>(std::move(files), finished));
}

}  // namespace heddle::checkpoint
