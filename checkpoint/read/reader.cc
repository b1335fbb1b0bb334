#include "checkpoint/read/reader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/system/file.h"
#include "base/tensor/half.h"
#include "base/thread.h"
#include "checkpoint/files/chunk_reader.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

/// What one request wants of one box.
struct Want {
  const ReadRequest* request = nullptr;
  Box part;  ///< The common part of the request and the box, in the tensor's coordinates.
  /// The type that the chunk's elements are rounded to on their way. None: they stay as they are.
  std::optional<DType> rounded;
};

/// One chunk and everything that wants a part of it.
struct Job {
  const TensorRecord* tensor = nullptr;
  const BoxRecord* box = nullptr;
  int64_t index = 0;
  std::vector<Want> wanted;
};

/// By file and address, so that a disk reads forward. The box belongs to the key because nothing
/// else says that two tensors do not name the same bytes, in other shapes.
using Jobs = std::map<std::tuple<int64_t, int64_t, const BoxRecord*>, Job>;

/// Adds the chunks of stored boxes of `tensor` that `want.part` touches.
void AddStored(const TensorRecord& tensor, const Want& want, Jobs& jobs) {
  for (const BoxRecord& box : tensor.boxes) {
    const bool stored = !box.chunks.empty();
    const auto common = stored ? Intersect(box.box, want.part) : std::nullopt;
    if (!common) {
      continue;
    }
    const ChunkGrid grid(box.box.extent, box.chunk);
    for (const int64_t index : grid.Touching(Shifted(*common, box.box.offset, -1))) {
      Job& job = jobs[{box.file, box.chunks[static_cast<size_t>(index)].address, &box}];
      job.tensor = &tensor;
      job.box = &box;
      job.index = index;
      job.wanted.push_back(want);
      job.wanted.back().part = *common;
    }
  }
}

/// Adds the chunks that derived boxes of `tensor` follow from. A source is fp32, so that its own
/// boxes are never derived.
void AddDerived(const Manifest& manifest,
                const TensorRecord& tensor,
                const ReadRequest& request,
                Jobs& jobs) {
  for (const BoxRecord& box : tensor.boxes) {
    const bool derived = !box.derived_from.empty();
    const auto common = derived ? Intersect(box.box, request.box) : std::nullopt;
    if (common) {
      const TensorRecord* const source =
          manifest.Find({.name = tensor.info.name, .role = box.derived_from});
      AddStored(*source, {.request = &request, .part = *common, .rounded = tensor.info.dtype},
                jobs);
    }
  }
}

/// The chunks that the requests touch, in the order of Jobs.
Result<std::vector<Job>> PlanJobs(const Manifest& manifest, std::span<const ReadRequest> requests) {
  Jobs jobs;
  for (const ReadRequest& request : requests) {
    const TensorRecord* tensor = manifest.Find(request.key);
    if (tensor == nullptr) {
      return NotFoundError("tensor '{}' ({}) is not in the checkpoint of step {}", request.key.name,
                           request.key.role, manifest.step);
    }
    HEDDLE_RETURN_IF_ERROR(
        CheckInside(tensor->info.shape, request.box)
            .WithContext("tensor '{}' ({})", request.key.name, request.key.role));
    const int64_t bytes = ElementCount(request.box.extent) * SizeOf(tensor->info.dtype);
    if (bytes != static_cast<int64_t>(request.out.size())) {
      return InvalidArgumentError("tensor '{}' ({}): {} bytes of memory for box {} of {} bytes",
                                  request.key.name, request.key.role, request.out.size(),
                                  ToString(request.box), bytes);
    }
    if (bytes > 0) {
      AddStored(*tensor, {.request = &request, .part = request.box, .rounded = {}}, jobs);
      AddDerived(manifest, *tensor, request, jobs);
    }
  }
  std::vector<Job> list;
  list.reserve(jobs.size());
  for (auto& [place, job] : jobs) {
    list.push_back(std::move(job));
  }
  return list;
}

Status RunJob(const Job& job, const SourceFile& file, ChunkReader& reader) {
  HEDDLE_ASSIGN_OR_RETURN(const auto raw, reader.Read(file, *job.tensor, *job.box, job.index));
  const ChunkGrid grid(job.box->box.extent, job.box->chunk);
  const Box filled = Shifted(grid.Clipped(job.index), job.box->box.offset, 1);
  const Box held = job.box->raw ? filled : Shifted(grid.Full(job.index), job.box->box.offset, 1);
  Bytes narrow;
  for (const Want& want : job.wanted) {
    const auto common = Intersect(filled, want.part);
    if (!common) {
      continue;
    }
    std::span<const std::byte> elements = raw;
    if (want.rounded) {
      narrow.resize(raw.size() / 2);
      RoundFromF32(raw, narrow, *want.rounded);
      elements = narrow;
    }
    CopyPart(elements.data(), held, want.request->out.data(), want.request->box, *common,
             SizeOf(want.rounded.value_or(job.tensor->info.dtype)));
  }
  return Status::Ok();
}

}  // namespace

struct Reader::State {
  std::string path;
  Manifest manifest;
  std::vector<std::unique_ptr<SourceFile>> files;  ///< As manifest.files.
};

Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reader::~Reader() = default;

Result<std::unique_ptr<Reader>> Reader::Open(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(Manifest manifest, LoadManifest(path));
  std::vector<std::unique_ptr<SourceFile>> files;
  for (const FileRecord& record : manifest.files) {
    auto file = OpenFile(JoinPath(path, record.name));
    if (IsUnreachable(file.status())) {
      return file.status();
    }
    if (!file.ok()) {
      return DataLossError("{}", file.status().message());
    }
    files.push_back(*std::move(file));
  }
  return Over(std::move(manifest), std::move(files), path);
}

Result<std::unique_ptr<Reader>> Reader::Over(Manifest manifest,
                                             std::vector<std::unique_ptr<SourceFile>> files,
                                             std::string path) {
  if (files.size() != manifest.files.size()) {
    return InvalidArgumentError("{}: {} files, the manifest lists {}", path, files.size(),
                                manifest.files.size());
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i]->bytes() != manifest.files[i].bytes) {
      return DataLossError("{}: {} bytes, {} expected", files[i]->name(), files[i]->bytes(),
                           manifest.files[i].bytes);
    }
  }
  return std::unique_ptr<Reader>(new Reader(std::make_unique<State>(
      State{.path = std::move(path), .manifest = std::move(manifest), .files = std::move(files)})));
}

const Manifest& Reader::manifest() const {
  return state_->manifest;
}
const std::string& Reader::path() const {
  return state_->path;
}

Status Reader::Read(const TensorKey& key, const Box& box, std::span<std::byte> out) const {
  const ReadRequest request{.key = key, .box = box, .out = out};
  return ReadBoxes(std::span(&request, 1), 1);
}

Status Reader::ReadBoxes(std::span<const ReadRequest> requests, int threads) const {
  HEDDLE_ASSIGN_OR_RETURN(const auto jobs, PlanJobs(state_->manifest, requests));
  Mutex mutex;
  Status failure;
  size_t next = 0;
  const auto work = [&] {
    ChunkReader reader;
    for (;;) {
      size_t mine = 0;
      {
        const MutexLock lock(mutex);
        if (next >= jobs.size() || !failure.ok()) {
          return;
        }
        mine = next++;
      }
      const auto file = static_cast<size_t>(jobs[mine].box->file);
      Status status = RunJob(jobs[mine], *state_->files[file], reader);
      if (!status.ok()) {
        const MutexLock lock(mutex);
        failure = failure.ok() ? std::move(status) : failure;
        return;
      }
    }
  };
  std::vector<Thread> helpers;
  for (size_t i = 1; i < std::min(static_cast<size_t>(std::max(threads, 1)), jobs.size()); ++i) {
    helpers.emplace_back("checkpoint-read", work);
  }
  work();
  helpers.clear();
  return failure;
}

Status Reader::CheckFileHashes() const {
  for (size_t i = 0; i < state_->files.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string hash, HashFile(*state_->files[i]));
    if (hash != state_->manifest.files[i].hash) {
      return DataLossError("{}: its bytes do not match the manifest's hash",
                           state_->files[i]->name());
    }
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
