#include "checkpoint/formats/native_files.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/system/file.h"
#include "base/tensor/half.h"
#include "base/thread.h"
#include "checkpoint/codec/codec.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/files/hdf5_file.h"
#include "checkpoint/files/tensor_index.h"
#include "checkpoint/format/digest.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/formats/staged_output.h"
#include "checkpoint/store/store.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
/// Chunks that are compressed at once: enough work for many threads, little memory.
constexpr size_t kBatch = 32;

/// A chunk on its way from the stream to the file.
struct PendingChunk {
  std::vector<std::byte> raw;
  int64_t filled = 0;             ///< Bytes of elements; zeros behind them are padding.
  int64_t index = 0;              ///< In the box's grid.
  std::vector<std::byte> narrow;  ///< `raw` as it is stored, when that is another type.
  std::vector<std::byte> encoded;
  int64_t size = 0;
  uint64_t hash = 0;
  Digest digest;
  Status status;
};

/// Whether `part` is what a file of this plan reports.
bool Reports(const FilePart& part, const NativeRequest& request, const FilePlan& file) {
  if (part.step != request.step || part.generation != request.generation ||
      part.boxes.size() != file.boxes.size()) {
    return false;
  }
  for (size_t i = 0; i < part.boxes.size(); ++i) {
    const BoxRecord& record = part.boxes[i].record;
    if (record.box != file.boxes[i].box || record.derived_from != file.boxes[i].derived_from ||
        record.stored_as != file.boxes[i].stored_as ||
        part.boxes[i].tensor != request.tensors[file.boxes[i].tensor]) {
      return false;
    }
  }
  return true;
}

}  // namespace

class NativeFiles::Implementation {
 public:
  Implementation(NativeRequest request, StagedOutput output)
      : request_(std::move(request)),
        output_(std::move(output)),
        slots_(kBatch) {}

  /// Takes over what an earlier process finished, and opens the file after it.
  Status Begin() {
    for (const FinishedFile& finished : output_.finished()) {
      auto part = DecodePart(finished.detail);
      if (!part.ok() || !Reports(*part, request_, request_.files[parts_.size()])) {
        break;
      }
      part->file = finished.file;
      parts_.push_back(*std::move(part));
    }
    HEDDLE_RETURN_IF_ERROR(output_.Keep(parts_.size()));
    finished_ = parts_.size();
    for (int i = 0; i < std::max(request_.threads, 1); ++i) {
      encoders_.push_back(std::make_unique<ChunkEncoder>());
    }
    return ToNextElement();
  }

  size_t finished() const { return finished_; }
  const std::string& history() const { return output_.history(); }
  Status Append(std::span<const std::byte> bytes);
  Status Finish(const std::function<Status(Manifest&)>& last_look);

 private:
  bool IsDerived() const { return !placed().derived_from.empty(); }
  bool done() const { return parts_.size() == request_.files.size(); }
  const FilePlan& plan() const { return request_.files[parts_.size()]; }
  const PlacedBox& placed() const { return plan().boxes[next_]; }
  const TensorInfo& tensor() const { return request_.tensors[placed().tensor]; }
  Status ToNextElement();
  Status BeginFile();
  Status EndFile();
  Status BeginBox();
  Status EndBox();
  Status FlushBatch();
  void Encode(PendingChunk& slot, ChunkEncoder& encoder) const;

  const NativeRequest request_;
  StagedOutput output_;
  std::vector<std::unique_ptr<ChunkEncoder>> encoders_;
  size_t finished_ = 0;
  std::vector<FilePart> parts_;  ///< Reports of the finished files.

  std::unique_ptr<Hdf5File> file_;   ///< The file that is being written.
  FilePart part_;                    ///< Report of that file so far.
  size_t next_ = 0;                  ///< Index of the box whose elements come now.
  std::unique_ptr<ChunkGrid> grid_;  ///< Grid of that box, once it has begun.
  BoxRecord record_;
  int64_t chunk_ = 0;  ///< The chunk of the grid that is being filled.
  std::vector<PendingChunk> slots_;
  size_t used_ = 0;  ///< Slots that are full.
};

/// Past boxes without elements and the ends of files, up to a box that has elements to come.
Status NativeFiles::Implementation::ToNextElement() {
  while (!done()) {
    if (file_ == nullptr) {
      HEDDLE_RETURN_IF_ERROR(BeginFile());
    }
    for (; next_ < plan().boxes.size() && ElementCount(placed().box.extent) == 0; ++next_) {
      FilePart::PartBox empty{.tensor = tensor(), .record = {}};
      empty.record.box = placed().box;
      part_.boxes.push_back(std::move(empty));
    }
    if (next_ < plan().boxes.size()) {
      return Status::Ok();
    }
    HEDDLE_RETURN_IF_ERROR(EndFile());
  }
  return Status::Ok();
}

Status NativeFiles::Implementation::BeginFile() {
  int64_t chunks = 0;
  for (const PlacedBox& box : plan().boxes) {
    const int64_t element = SizeOf(request_.tensors[box.tensor].dtype);
    chunks += 1 + ElementCount(box.box.extent) * element / kChunkBytes;
  }
  HEDDLE_ASSIGN_OR_RETURN(file_,
                          Hdf5File::Create(output_.temporary() + "/" + plan().name,
                                           static_cast<int64_t>(plan().boxes.size()), chunks));
  part_ = {};
  part_.step = request_.step;
  part_.generation = request_.generation;
  next_ = 0;
  return Status::Ok();
}

Status NativeFiles::Implementation::EndFile() {
  HEDDLE_ASSIGN_OR_RETURN(part_.file, file_->Close());
  HEDDLE_RETURN_IF_ERROR(file_->Sync());
  file_.reset();
  if (parts_.size() + 1 < request_.files.size()) {  // The last one ends with all.
    HEDDLE_RETURN_IF_ERROR(output_.Record(part_.file, EncodePart(part_)));
  }
  parts_.push_back(std::move(part_));
  return Status::Ok();
}

Status NativeFiles::Implementation::BeginBox() {
  const TensorInfo& info = tensor();
  const StoredBox stored{.name = info.name,
                         .role = info.role,
                         .dtype = info.dtype,
                         .global_shape = info.shape,
                         .box = placed().box,
                         .stored_as = placed().stored_as};
  const Shape chunk = ContiguousTile(stored.box.extent, kChunkBytes / SizeOf(info.dtype));
  grid_ = std::make_unique<ChunkGrid>(stored.box.extent, chunk);
  chunk_ = 0;
  record_ = {};
  record_.box = stored.box;
  record_.derived_from = placed().derived_from;
  if (IsDerived()) {
    return Status::Ok();
  }
  record_.chunk = chunk;
  record_.stored_as = stored.stored_as;
  record_.dataset = DatasetName(info.name, info.role, info.shape, stored.box);
  return file_->BeginDataset(record_.dataset, stored, record_.chunk);
}

Status NativeFiles::Implementation::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (done()) {
      return FailedPreconditionError("{}: more elements than its tensors have", request_.path);
    }
    if (grid_ == nullptr) {
      HEDDLE_RETURN_IF_ERROR(BeginBox());
    }
    const int64_t element = SizeOf(tensor().dtype);
    PendingChunk& slot = slots_[used_];
    if (slot.filled == 0) {
      slot.raw.assign(static_cast<size_t>(grid_->chunk_elements() * element), std::byte{0});
      slot.index = chunk_;
    }
    const int64_t wanted = ElementCount(grid_->Clipped(chunk_).extent) * element;
    const auto now = std::min(bytes.size(), static_cast<size_t>(wanted - slot.filled));
    std::memcpy(slot.raw.data() + slot.filled, bytes.data(), now);
    bytes = bytes.subspan(now);
    slot.filled += static_cast<int64_t>(now);
    if (slot.filled < wanted) {
      continue;
    }
    ++chunk_;
    ++used_;
    const bool last = chunk_ == grid_->count();
    if (used_ == slots_.size() || last) {
      HEDDLE_RETURN_IF_ERROR(FlushBatch());
    }
    if (last) {
      HEDDLE_RETURN_IF_ERROR(EndBox());
    }
  }
  return Status::Ok();
}

/// Tiles of the box are contiguous in it, so the padding of a chunk stands behind its elements.
void NativeFiles::Implementation::Encode(PendingChunk& slot, ChunkEncoder& encoder) const {
  const int64_t element = SizeOf(tensor().dtype);
  const Shape& offset = placed().box.offset;
  slot.digest =
      DigestPart(slot.raw, element, tensor().shape, Shifted(grid_->Full(slot.index), offset, 1),
                 Shifted(grid_->Clipped(slot.index), offset, 1));
  slot.status = Status::Ok();
  if (IsDerived()) {
    return;
  }
  std::span<const std::byte> stored = slot.raw;
  const DType type = placed().stored_as.value_or(tensor().dtype);
  if (placed().stored_as) {
    slot.narrow.resize(static_cast<size_t>(grid_->chunk_elements() * SizeOf(type)));
    RoundFromF32(slot.raw, slot.narrow, type);
    stored = slot.narrow;
  }
  slot.encoded.resize(static_cast<size_t>(EncodedBound(static_cast<int64_t>(stored.size()))));
  const auto size = encoder.Encode(stored, SizeOf(type), slot.encoded);
  slot.status = size.status();
  if (size.ok()) {
    slot.size = *size;
    slot.hash = Hash64(std::span(slot.encoded).first(static_cast<size_t>(*size)));
  }
}

Status NativeFiles::Implementation::FlushBatch() {
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
    PendingChunk& slot = slots_[i];
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

Status NativeFiles::Implementation::EndBox() {
  if (!IsDerived()) {
    HEDDLE_RETURN_IF_ERROR(file_->EndDataset());
  }
  part_.raw_bytes += ElementCount(placed().box.extent) * SizeOf(tensor().dtype);
  part_.boxes.push_back({.tensor = tensor(), .record = std::move(record_)});
  grid_.reset();
  ++next_;
  return ToNextElement();
}

Status NativeFiles::Implementation::Finish(const std::function<Status(Manifest&)>& last_look) {
  if (!done()) {
    return FailedPreconditionError("{}: elements of tensor '{}' and what follows are missing",
                                   request_.path, tensor().name);
  }
  HEDDLE_ASSIGN_OR_RETURN(Manifest manifest, BuildManifest({.root = {},
                                                            .step = request_.step,
                                                            .generation = request_.generation,
                                                            .job = request_.job,
                                                            .expected = request_.tensors,
                                                            .parts = parts_}));
  HEDDLE_ASSIGN_OR_RETURN(FileRecord index, WriteTensorIndex(output_.temporary(), manifest));
  manifest.files.push_back(std::move(index));
  if (last_look) {
    HEDDLE_RETURN_IF_ERROR(last_look(manifest));
  }
  HEDDLE_RETURN_IF_ERROR(
      WriteFileAtomically(output_.temporary() + "/" + kManifestName, EncodeManifest(manifest)));
  return output_.Commit(request_.replace);
}

NativeFiles::NativeFiles(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
NativeFiles::~NativeFiles() = default;

Result<std::unique_ptr<NativeFiles>> NativeFiles::Create(NativeRequest request) {
  if (const auto step = StepOfFolder(request.path); step && *step != request.step) {
    return InvalidArgumentError("{}: what it would hold is of step {}: name the folder otherwise",
                                request.path, request.step);
  }
  Attempt attempt{.identity = request.identity, .files = {}};
  for (size_t i = 0; i + 1 < request.files.size(); ++i) {  // The last one ends with all.
    attempt.files.push_back(request.files[i].name);
  }
  HEDDLE_ASSIGN_OR_RETURN(auto output, StagedOutput::Folder(request.path, std::move(attempt)));
  auto implementation = std::make_unique<Implementation>(std::move(request), std::move(output));
  HEDDLE_RETURN_IF_ERROR(implementation->Begin());
  return std::unique_ptr<NativeFiles>(new NativeFiles(std::move(implementation)));
}

size_t NativeFiles::finished() const {
  return implementation_->finished();
}
const std::string& NativeFiles::history() const {
  return implementation_->history();
}
Status NativeFiles::Append(std::span<const std::byte> bytes) {
  return implementation_->Append(bytes);
}
Status NativeFiles::Finish(const std::function<Status(Manifest&)>& last_look) {
  return implementation_->Finish(last_look);
}

}  // namespace heddle::checkpoint
