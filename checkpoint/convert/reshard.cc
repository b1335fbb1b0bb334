#include "checkpoint/convert/reshard.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/convert/identity.h"
#include "checkpoint/convert/target.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/read/reader.h"
#include "engine/graph/models/model.h"
#include "engine/program/state.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kTileBytes = int64_t{32} << 20;

int64_t BytesOf(const TensorInfo& info, const Box& box) {
  return ElementCount(box.extent) * SizeOf(info.dtype);
}

std::vector<TensorInfo> TensorsOf(const Manifest& manifest) {
  std::vector<TensorInfo> tensors;
  for (const TensorRecord& record : manifest.tensors) {
    tensors.push_back(record.info);
  }
  return tensors;
}

/// As a writer calls its file.
std::string FileName(std::string_view worker, int64_t generation) {
  return fmt::format("{}.g{}.h5", EscapeName(worker), generation);
}

/// Tensors by name and then by role, so that what is updated together lies together.
std::vector<size_t> ByName(std::span<const TensorInfo> tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(tensors[a].name, tensors[a].role) < std::tie(tensors[b].name, tensors[b].role);
  });
  return order;
}

std::vector<FilePlan> WithoutEmpty(std::vector<FilePlan> files) {
  std::erase_if(files, [](const FilePlan& file) { return file.boxes.empty(); });
  return files;
}

/// Equal for calls that write the same bytes.
Result<std::string> IdentityOf(const std::string& source, const std::vector<FilePlan>& files) {
  HEDDLE_ASSIGN_OR_RETURN(std::string fingerprint, FileFingerprint(source));
  for (const FilePlan& file : files) {
    fingerprint += file.name + "\n";
    for (const PlacedBox& placed : file.boxes) {
      fingerprint += fmt::format("{} {} {} {}\n", placed.tensor, ToString(placed.box),
                                 placed.derived_from, placed.stored_as.has_value());
    }
  }
  return Hash128Hex(AsBytes(fingerprint));
}

/// What is derived, or stored rounded, in all of a tensor stays so; what is in parts of it alone is
/// stored as its elements are.
void KeepForm(const TensorRecord& tensor, PlacedBox& placed) {
  const auto with_elements = [](const BoxRecord& box) { return ElementCount(box.box.extent) > 0; };
  const auto first = std::find_if(tensor.boxes.begin(), tensor.boxes.end(), with_elements);
  if (first != tensor.boxes.end() && ElementCount(placed.box.extent) > 0 &&
      std::all_of(first, tensor.boxes.end(), [&](const BoxRecord& box) {
        return !with_elements(box) ||
               (box.derived_from == first->derived_from && box.stored_as == first->stored_as);
      })) {
    placed.derived_from = first->derived_from;
    placed.stored_as = first->stored_as;
  }
}

/// Passes one box from the reader to the files, in tiles.
Status CopyBox(const Reader& reader,
               const TensorInfo& info,
               const Box& box,
               int threads,
               NativeFiles& files,
               ProgressCount& progress) {
  if (ElementCount(box.extent) == 0) {
    return Status::Ok();
  }
  const ChunkGrid tiles(box.extent, ContiguousTile(box.extent, kTileBytes / SizeOf(info.dtype)));
  Bytes bytes;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const Box tile = Shifted(tiles.Clipped(i), box.offset, 1);
    bytes.resize(static_cast<size_t>(BytesOf(info, tile)));
    const ReadRequest request{.key = info.key(), .box = tile, .out = bytes};
    HEDDLE_RETURN_IF_ERROR(reader.ReadBoxes(std::span(&request, 1), threads));
    HEDDLE_RETURN_IF_ERROR(files.Append(bytes));
    progress.Add(static_cast<int64_t>(bytes.size()));
  }
  return Status::Ok();
}

/// The written manifest becomes the source's but for files and boxes, when the digests agree.
Status TakeOver(const Manifest& source, Manifest& written) {
  for (size_t t = 0; t < source.tensors.size(); ++t) {
    const TensorRecord& record = source.tensors[t];
    if (written.tensors[t].info != record.info || written.tensors[t].digest != record.digest) {
      return DataLossError("tensor '{}' ({}): the elements do not match their digest",
                           record.info.name, record.info.role);
    }
  }
  written.created = source.created;
  return Status::Ok();
}

}  // namespace

std::vector<FilePlan> FilesOfWriters(const Manifest& manifest, int64_t workers) {
  const std::vector<TensorInfo> tensors = TensorsOf(manifest);
  const int64_t all = manifest.RawBytes();
  std::vector<FilePlan> files(static_cast<size_t>(workers));
  for (int64_t w = 0; w < workers; ++w) {
    files[static_cast<size_t>(w)].name = FileName(fmt::format("worker-{}", w), manifest.generation);
  }
  // Where worker w ends, without overflow.
  const auto border = [&](int64_t w) {
    return all / workers * (w + 1) + all % workers * (w + 1) / workers;
  };
  int64_t worker = 0;
  int64_t given = 0;  // Bytes before the box in hand.
  for (const size_t t : ByName(tensors)) {
    Box rest = WholeBox(tensors[t].shape);
    for (;;) {
      const int64_t bytes = BytesOf(tensors[t], rest);
      const int64_t rows = rest.extent.empty() ? 1 : rest.extent[0];
      const int64_t row = bytes == 0 ? 1 : bytes / rows;
      // Up to the row nearest to the border; what has one row goes where its middle lies.
      const int64_t fits =
          bytes == 0 ? rows : std::min((border(worker) - given + row / 2) / row, rows);
      if (fits == rows || worker + 1 == workers) {
        files[static_cast<size_t>(worker)].boxes.push_back({.tensor = t, .box = rest});
        given += bytes;
        break;
      }
      if (fits > 0) {
        Box part = rest;
        part.extent[0] = fits;
        rest.offset[0] += fits;
        rest.extent[0] -= fits;
        given += BytesOf(tensors[t], part);
        files[static_cast<size_t>(worker)].boxes.push_back({.tensor = t, .box = std::move(part)});
      }
      ++worker;
    }
  }
  return WithoutEmpty(std::move(files));
}

Result<std::vector<FilePlan>> FilesOfPlan(const Manifest& manifest, const program::Plan& plan) {
  if (manifest.job.model.empty()) {
    return InvalidArgumentError("the checkpoint does not say which model it is of");
  }
  const auto config = graph::ParseModelConfig(manifest.job.model);
  HEDDLE_RETURN_IF_ERROR(config.status().WithContext("the checkpoint's model"));
  // Which segment holds which parameter does not depend on the batch.
  graph::TrainingGraphOptions options;
  options.sequence_length = std::min(options.sequence_length, config->max_position_embeddings);
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, graph::BuildTrainingGraph(*config, options));
  HEDDLE_RETURN_IF_ERROR(program::ValidatePlan(plan, graph));
  const std::vector<TensorInfo> tensors = TensorsOf(manifest);
  std::map<std::pair<std::string_view, std::string_view>, size_t> places;
  for (size_t t = 0; t < tensors.size(); ++t) {
    places.emplace(std::pair(std::string_view(tensors[t].name), std::string_view(tensors[t].role)),
                   t);
  }
  std::vector<FilePlan> files;
  const program::StateLayout layout = program::OwnedLayout(graph, plan);
  for (size_t worker = 0; worker < layout.size(); ++worker) {
    FilePlan file{.name = FileName(plan.workers[worker], manifest.generation), .boxes = {}};
    for (const program::StateBox& box : layout[worker]) {
      const auto place = places.find(std::pair(
          std::string_view(graph.parameter(box.parameter).name), program::StateRoleName(box.role)));
      if (place != places.end()) {  // A model that was converted has no moments.
        file.boxes.push_back({.tensor = place->second, .box = box.box});
      }
    }
    files.push_back(std::move(file));
  }
  std::vector<bool> covered(tensors.size(), false);
  for (const FilePlan& file : files) {
    for (const PlacedBox& box : file.boxes) {
      HEDDLE_RETURN_IF_ERROR(CheckInside(tensors[box.tensor].shape, box.box)
                                 .WithContext("tensor '{}'", tensors[box.tensor].name));
      covered[box.tensor] = true;
    }
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!covered[t]) {
      return InvalidArgumentError("no worker of the plan holds tensor '{}' ({})", tensors[t].name,
                                  tensors[t].role);
    }
  }
  return WithoutEmpty(std::move(files));
}

Result<ReshardSummary> Reshard(const std::string& source,
                               const std::string& target,
                               const ChooseFiles& choose,
                               const ReshardOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckTarget(source, target, options.overwrite));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(source));
  const Manifest& manifest = reader->manifest();
  NativeRequest request;
  request.path = target;
  request.replace = options.overwrite;
  request.step = manifest.step;
  request.generation = manifest.generation;
  request.job = manifest.job;
  request.tensors = TensorsOf(manifest);
  HEDDLE_ASSIGN_OR_RETURN(request.files, choose(manifest));
  for (FilePlan& file : request.files) {
    for (PlacedBox& placed : file.boxes) {
      KeepForm(manifest.tensors[placed.tensor], placed);
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(request.identity, IdentityOf(source, request.files));
  request.threads = options.threads;
  const std::vector<FilePlan> plans = request.files;
  HEDDLE_ASSIGN_OR_RETURN(const auto files, NativeFiles::Create(std::move(request)));
  if (options.note && !files->history().empty()) {
    options.note(files->history());
  }
  int64_t finished = 0;
  for (size_t f = 0; f < files->finished(); ++f) {
    for (const PlacedBox& placed : plans[f].boxes) {
      finished += BytesOf(manifest.tensors[placed.tensor].info, placed.box);
    }
  }
  ProgressCount progress(options.progress, manifest.RawBytes(), finished);
  for (size_t f = files->finished(); f < plans.size(); ++f) {
    for (const PlacedBox& placed : plans[f].boxes) {
      HEDDLE_RETURN_IF_ERROR(CopyBox(*reader, manifest.tensors[placed.tensor].info, placed.box,
                                     options.threads, *files, progress));
    }
  }
  if (options.overwrite) {  // Long after the first look.
    HEDDLE_RETURN_IF_ERROR(CheckTarget(source, target, options.overwrite));
  }
  HEDDLE_RETURN_IF_ERROR(
      files->Finish([&](Manifest& written) { return TakeOver(manifest, written); })
          .WithContext("{}", target));
  return ReshardSummary{.files = static_cast<int64_t>(plans.size()),
                        .tensors = static_cast<int64_t>(manifest.tensors.size()),
                        .bytes = manifest.RawBytes()};
}

}  // namespace heddle::checkpoint
