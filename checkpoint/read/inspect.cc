#include "checkpoint/read/inspect.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/extra.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"

namespace heddle::checkpoint {

namespace {

int64_t StoredBytes(const TensorRecord& tensor) {
  int64_t bytes = 0;
  for (const BoxRecord& box : tensor.boxes) {
    for (const ChunkRecord& chunk : box.chunks) {
      bytes += chunk.bytes;
    }
  }
  return bytes;
}

int64_t RawBytes(const TensorInfo& info) {
  return ElementCount(info.shape) * SizeOf(info.dtype);
}

std::string Size(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

double Ratio(int64_t raw, int64_t stored) {
  return stored > 0 ? static_cast<double>(raw) / static_cast<double>(stored) : 1;
}

bool IsLossy(const TensorRecord& tensor) {
  return std::any_of(tensor.boxes.begin(), tensor.boxes.end(),
                     [](const BoxRecord& box) { return box.stored_as.has_value(); });
}

/// The role that boxes of the tensor are derived from; empty when all are stored.
std::string Source(const TensorRecord& tensor) {
  for (const BoxRecord& box : tensor.boxes) {
    if (!box.derived_from.empty()) {
      return box.derived_from;
    }
  }
  return {};
}

/// "", "rounded to bf16", "derived from master" or, of some of its boxes, "derived from master
/// (2 of 3 boxes)".
std::string Mark(const TensorRecord& tensor) {
  if (IsLossy(tensor)) {
    return "rounded to bf16";
  }
  const auto derived =
      std::count_if(tensor.boxes.begin(), tensor.boxes.end(),
                    [](const BoxRecord& box) { return !box.derived_from.empty(); });
  if (derived == 0) {
    return {};
  }
  const bool all = static_cast<size_t>(derived) == tensor.boxes.size();
  return fmt::format("derived from {}{}", Source(tensor),
                     all ? "" : fmt::format(" ({} of {} boxes)", derived, tensor.boxes.size()));
}

/// The guarantee with its reason, then what the steps were computed on: one line or two.
std::string GuaranteeText(const GuaranteeRecord& record) {
  std::string text = fmt::format("guarantee         {}{}{}\n", record.guarantee,
                                 record.reason.empty() ? "" : ": ", record.reason);
  std::string parts;
  for (const auto& [part, value] : record.arithmetic) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : "; ", part, value);
  }
  return parts.empty() ? text : text + fmt::format("computed on       {}\n", parts);
}

}  // namespace

std::string LossyNote(const Manifest& manifest) {
  std::set<std::string> roles;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (IsLossy(tensor)) {
      roles.insert(tensor.info.role);
    }
  }
  return roles.empty()
             ? std::string()
             : fmt::format("rounded to bf16 when they were saved: {}", fmt::join(roles, ", "));
}

std::string InspectText(const Manifest& manifest) {
  std::string text;
  text += fmt::format("step              {}\n", manifest.step);
  text += fmt::format("generation        {}\n", manifest.generation);
  text += fmt::format("samples consumed  {}\n", manifest.job.samples_consumed);
  text += fmt::format("job               {}\n", manifest.job.job_hash);
  text += GuaranteeText(GuaranteeOf(manifest.job));
  text += fmt::format("size              {} for {} of tensors (ratio {:.3f})\n",
                      Size(manifest.StoredBytes()), Size(manifest.RawBytes()),
                      Ratio(manifest.RawBytes(), manifest.StoredBytes()));
  for (const FileRecord& file : manifest.files) {
    text += fmt::format("file              {}  {}\n", file.name, Size(file.bytes));
  }
  if (const std::string note = LossyNote(manifest); !note.empty()) {
    text += fmt::format("lossy             {}\n", note);
  }
  size_t widest = 4;
  for (const TensorRecord& tensor : manifest.tensors) {
    widest = std::max(widest, std::min(tensor.info.name.size(), kWidestName));
  }
  text += fmt::format("{:10}  {:{}}  {:5}  {:>10}  {:>6}  {:>5}  shape\n", "role", "name", widest,
                      "dtype", "size", "ratio", "boxes");
  for (const TensorRecord& tensor : manifest.tensors) {
    const int64_t raw = RawBytes(tensor.info);
    const std::string mark = Mark(tensor);
    const int64_t stored = StoredBytes(tensor);
    text += fmt::format("{:10}  {:{}}  {:5}  {:>10}  {:>6}  {:>5}  {}{}{}\n", tensor.info.role,
                        tensor.info.name, widest, DTypeName(tensor.info.dtype), Size(raw),
                        stored == 0 && raw > 0 ? "-" : fmt::format("{:.3f}", Ratio(raw, stored)),
                        tensor.boxes.size(), ToString(tensor.info.shape), mark.empty() ? "" : "  ",
                        mark);
  }
  return text;
}

std::string InspectJson(const Manifest& manifest) {
  using Json = nlohmann::ordered_json;
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  Json tensors = Json::array();
  for (const TensorRecord& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.info.name},
                       {"role", tensor.info.role},
                       {"dtype", DTypeName(tensor.info.dtype)},
                       {"shape", tensor.info.shape},
                       {"bytes", RawBytes(tensor.info)},
                       {"stored_bytes", StoredBytes(tensor)},
                       {"boxes", tensor.boxes.size()},
                       {"digest", ToHex(tensor.digest)},
                       {"lossy", IsLossy(tensor)}});
    if (const std::string source = Source(tensor); !source.empty()) {
      tensors.back()["derived_from"] = source;
    }
  }
  // The plan is JSON text of another layer: shown as JSON when it is.
  Json plan = Json::parse(manifest.job.plan, nullptr, false);
  if (plan.is_discarded()) {
    plan = manifest.job.plan;
  }
  const GuaranteeRecord guarantee = GuaranteeOf(manifest.job);
  const Json json = {{"format", "heddle-checkpoint"},
                     {"version", manifest.version},
                     {"step", manifest.step},
                     {"generation", manifest.generation},
                     {"created", manifest.created},
                     {"samples_consumed", manifest.job.samples_consumed},
                     {"job_hash", manifest.job.job_hash},
                     {"guarantee", guarantee.guarantee},
                     {"guarantee_reason", guarantee.reason},
                     {"arithmetic", guarantee.arithmetic},
                     {"bytes", manifest.RawBytes()},
                     {"stored_bytes", manifest.StoredBytes()},
                     {"plan", std::move(plan)},
                     {"files", std::move(files)},
                     {"tensors", std::move(tensors)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace heddle::checkpoint
