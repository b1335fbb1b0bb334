#include "checkpoint/formats/native_sink.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/thread.h"
#include "checkpoint/codec.h"
#include "checkpoint/digest.h"
#include "checkpoint/file_access.h"
#include "checkpoint/formats/staged_output.h"
#include "checkpoint/hdf5_file.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/store.h"
#include "checkpoint/tensor_index.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
/// Chunks that are compressed at once: enough work for many threads, little memory.
constexpr size_t kBatch = 32;
constexpr const char* kFileName = "model.g0.h5";

/// A chunk on its way from the stream to the file.
struct Slot {
  std::vector<std::byte> raw;
  int64_t filled = 0;         ///< Bytes of elements; zeros behind them are padding.
  int64_t first_element = 0;  ///< In the tensor.
  int64_t index = 0;          ///< In the tensor's grid.
  std::vector<std::byte> encoded;
  int64_t size = 0;
  uint64_t hash = 0;
  Digest digest;
  Status status;
};

class NativeSink : public TensorSink {
 public:
  NativeSink(SinkRequest request, StagedOutput output)
      : request_(std::move(request)),
        output_(std::move(output)),
        slots_(kBatch) {
    part_.step = request_.step;
    part_.file.name = kFileName;
  }

  Status Begin() {
    HEDDLE_ASSIGN_OR_RETURN(file_, Hdf5File::Create(output_.temporary() + "/" + kFileName));
    for (int i = 0; i < std::max(request_.threads, 1); ++i) {
      encoders_.push_back(std::make_unique<ChunkEncoder>());
    }
    return SkipEmpty();
  }

  Status Append(std::span<const std::byte> bytes) override;
  Status Finish() override;

 private:
  const OutputTensor& tensor() const { return request_.tensors[next_]; }
  bool IsDerived() const { return !tensor().derived_from.empty(); }
  Status SkipEmpty();
  Status BeginTensor();
  Status EndTensor();
  int64_t WantedOfChunk() const;
  Status FlushBatch();
  void Encode(Slot& slot, ChunkEncoder& encoder) const;

  const SinkRequest request_;
  StagedOutput output_;
  std::unique_ptr<Hdf5File> file_;
  FilePart part_;
  std::vector<std::unique_ptr<ChunkEncoder>> encoders_;

  size_t next_ = 0;  ///< The tensor whose elements come now.
  std::unique_ptr<ChunkGrid> grid_;
  BoxRecord record_;
  int64_t taken_ = 0;  ///< Elements of the tensor that have come.
  int64_t chunk_ = 0;  ///< The chunk of the grid that is being filled.
  std::vector<Slot> slots_;
  size_t used_ = 0;  ///< Slots that are full.
};

Status NativeSink::SkipEmpty() {
  while (next_ < request_.tensors.size() && tensor().bytes() == 0) {
    FilePart::PartBox box{.tensor = {tensor().name, tensor().role, tensor().dtype, tensor().shape},
                          .record = {}};
    box.record.box = WholeBox(tensor().shape);
    part_.boxes.push_back(std::move(box));
    ++next_;
  }
  return Status::Ok();
}

Status NativeSink::BeginTensor() {
  const StoredBox stored{.name = tensor().name,
                         .role = tensor().role,
                         .dtype = tensor().dtype,
                         .global_shape = tensor().shape,
                         .box = WholeBox(tensor().shape)};
  record_ = {};
  record_.box = stored.box;
  record_.derived_from = tensor().derived_from;
  const Shape chunk = ContiguousTile(tensor().shape, kChunkBytes / SizeOf(tensor().dtype));
  grid_ = std::make_unique<ChunkGrid>(tensor().shape, chunk);
  taken_ = 0;
  chunk_ = 0;
  if (IsDerived()) {
    return Status::Ok();
  }
  record_.chunk = chunk;
  record_.dataset = DatasetName(stored.name, stored.role, stored.global_shape, stored.box);
  return file_->BeginDataset(record_.dataset, stored, chunk);
}

int64_t NativeSink::WantedOfChunk() const {
  return ElementCount(grid_->Clipped(chunk_).extent) * SizeOf(tensor().dtype);
}

Status NativeSink::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (next_ == request_.tensors.size()) {
      return FailedPreconditionError("more elements than the tensors have");
    }
    if (grid_ == nullptr) {
      HEDDLE_RETURN_IF_ERROR(BeginTensor());
    }
    Slot& slot = slots_[used_];
    if (slot.filled == 0) {
      slot.raw.assign(static_cast<size_t>(grid_->chunk_elements() * SizeOf(tensor().dtype)),
                      std::byte{0});
      slot.first_element = taken_;
      slot.index = chunk_;
    }
    const int64_t wanted = WantedOfChunk();
    const auto now = std::min(bytes.size(), static_cast<size_t>(wanted - slot.filled));
    std::memcpy(slot.raw.data() + slot.filled, bytes.data(), now);
    bytes = bytes.subspan(now);
    slot.filled += static_cast<int64_t>(now);
    if (slot.filled < wanted) {
      continue;
    }
    taken_ += wanted / SizeOf(tensor().dtype);
    ++chunk_;
    ++used_;
    const bool last = chunk_ == grid_->count();
    if (used_ == slots_.size() || last) {
      HEDDLE_RETURN_IF_ERROR(FlushBatch());
    }
    if (last) {
      HEDDLE_RETURN_IF_ERROR(EndTensor());
    }
  }
  return Status::Ok();
}

void NativeSink::Encode(Slot& slot, ChunkEncoder& encoder) const {
  const int64_t element = SizeOf(tensor().dtype);
  slot.digest = DigestRun(slot.raw.data(), element, slot.filled / element, slot.first_element);
  slot.status = Status::Ok();
  if (IsDerived()) {
    return;
  }
  slot.encoded.resize(static_cast<size_t>(EncodedBound(static_cast<int64_t>(slot.raw.size()))));
  const auto size = encoder.Encode(slot.raw, element, slot.encoded);
  slot.status = size.status();
  if (size.ok()) {
    slot.size = *size;
    slot.hash = Hash64(std::span(slot.encoded).first(static_cast<size_t>(*size)));
  }
}

Status NativeSink::FlushBatch() {
  std::atomic<size_t> next = 0;
  const auto work = [&](ChunkEncoder& encoder) {
    for (size_t mine = next++; mine < used_; mine = next++) {
      Encode(slots_[mine], encoder);
    }
  };
  {
    std::vector<Thread> helpers;
    for (size_t i = 1; i < std::min(encoders_.size(), used_); ++i) {
      helpers.emplace_back("heddle-encode", [&, i] { work(*encoders_[i]); });
    }
    work(*encoders_[0]);
  }
  for (size_t i = 0; i < used_; ++i) {
    Slot& slot = slots_[i];
    HEDDLE_RETURN_IF_ERROR(slot.status);
    if (!IsDerived()) {
      HEDDLE_ASSIGN_OR_RETURN(
          const int64_t address,
          file_->WriteChunk(grid_->Full(slot.index).offset,
                            std::span(slot.encoded).first(static_cast<size_t>(slot.size))));
      record_.chunks.push_back({.address = address, .bytes = slot.size, .hash = slot.hash});
    }
    record_.digest += slot.digest;
    slot.filled = 0;
  }
  used_ = 0;
  return Status::Ok();
}

Status NativeSink::EndTensor() {
  if (!IsDerived()) {
    HEDDLE_RETURN_IF_ERROR(file_->EndDataset());
  }
  part_.raw_bytes += tensor().bytes();
  part_.boxes.push_back({.tensor = {tensor().name, tensor().role, tensor().dtype, tensor().shape},
                         .record = std::move(record_)});
  grid_.reset();
  ++next_;
  return SkipEmpty();
}

Status NativeSink::Finish() {
  if (next_ != request_.tensors.size()) {
    return FailedPreconditionError("tensor '{}': elements are missing", tensor().name);
  }
  HEDDLE_RETURN_IF_ERROR(file_->Close());
  const std::string path = output_.temporary() + "/" + kFileName;
  HEDDLE_ASSIGN_OR_RETURN(const OpenedFile finished, OpenRegularFile(path));
  part_.file.bytes = finished.bytes;
  HEDDLE_ASSIGN_OR_RETURN(part_.file.hash, HashFile(finished, path));
  CommitRequest commit{
      .root = {}, .step = request_.step, .generation = 0, .job = {}, .expected = {}, .parts = {}};
  commit.job.model = request_.config;
  for (const FilePart::PartBox& box : part_.boxes) {
    commit.expected.push_back(box.tensor);
  }
  commit.parts.push_back(std::move(part_));
  HEDDLE_ASSIGN_OR_RETURN(Manifest manifest, BuildManifest(commit));
  HEDDLE_ASSIGN_OR_RETURN(FileRecord index, WriteTensorIndex(output_.temporary(), manifest));
  manifest.files.push_back(std::move(index));
  HEDDLE_RETURN_IF_ERROR(
      WriteFileAtomically(output_.temporary() + "/" + kManifestName, EncodeManifest(manifest)));
  return output_.Commit(request_.replace);
}

}  // namespace

Result<std::unique_ptr<TensorSink>> CreateNativeSink(SinkRequest request) {
  HEDDLE_ASSIGN_OR_RETURN(auto output, StagedOutput::Folder(request.path));
  auto sink = std::make_unique<NativeSink>(std::move(request), std::move(output));
  HEDDLE_RETURN_IF_ERROR(sink->Begin());
  return std::unique_ptr<TensorSink>(std::move(sink));
}

}  // namespace heddle::checkpoint
