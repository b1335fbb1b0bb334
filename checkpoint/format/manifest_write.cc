#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/format/manifest.h"

namespace heddle::checkpoint {

namespace {

using Json = nlohmann::json;

Json ChunksJson(const std::vector<ChunkRecord>& chunks) {
  Json out = Json::array();
  for (const ChunkRecord& chunk : chunks) {
    out.push_back(Json::array({chunk.address, chunk.bytes, fmt::format("{:016x}", chunk.hash)}));
  }
  return out;
}

Json BoxJson(const BoxRecord& box) {
  Json json = {{"file", box.file},
               {"dataset", box.dataset},
               {"offset", box.box.offset},
               {"extent", box.box.extent},
               {"chunk", box.chunk},
               {"digest", ToHex(box.digest)},
               {"chunks", ChunksJson(box.chunks)}};
  if (box.stored_as) {
    json["stored_as"] = DTypeName(*box.stored_as);
  }
  if (!box.derived_from.empty()) {
    json["derived"] = {{"role", box.derived_from}, {"rounding", kNearestEven}};
  }
  if (box.raw) {
    json["raw"] = true;
  }
  return json;
}

Json TensorJson(const TensorInfo& info) {
  return {{"name", info.name},
          {"role", info.role},
          {"dtype", DTypeName(info.dtype)},
          {"shape", info.shape}};
}

Json FileJson(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"blocks_xxh3_128", file.hash}};
}

/// Names come from users: bytes that are not UTF-8 are replaced rather than thrown about.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json PartJson(const FilePart& part) {
  Json boxes = Json::array();
  for (const FilePart::PartBox& box : part.boxes) {
    Json entry = BoxJson(box.record);
    entry["tensor"] = TensorJson(box.tensor);
    boxes.push_back(std::move(entry));
  }
  return {{"step", part.step},           {"generation", part.generation},
          {"file", FileJson(part.file)}, {"raw_bytes", part.raw_bytes},
          {"seconds", part.seconds},     {"boxes", std::move(boxes)}};
}

}  // namespace

std::string ToHex(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

std::string EncodeManifest(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back(FileJson(file));
  }
  Json tensors = Json::array();
  for (const TensorRecord& tensor : manifest.tensors) {
    Json entry = TensorJson(tensor.info);
    entry["digest"] = ToHex(tensor.digest);
    Json& boxes = entry["boxes"] = Json::array();
    for (const BoxRecord& box : tensor.boxes) {
      boxes.push_back(BoxJson(box));
    }
    tensors.push_back(std::move(entry));
  }
  const Json body = {{"step", manifest.step},
                     {"generation", manifest.generation},
                     {"created", manifest.created},
                     {"job_hash", manifest.job.job_hash},
                     {"job", manifest.job.job_yaml},
                     {"model", manifest.job.model},
                     {"plan", manifest.job.plan},
                     {"extra", manifest.job.extra},
                     {"samples_consumed", manifest.job.samples_consumed},
                     {"files", std::move(files)},
                     {"tensors", std::move(tensors)}};
  const std::string head = fmt::format("{}{}{}", kManifestHead, manifest.version, kChecksumField);
  std::string text = head + std::string(kHexDigits, '0') + "\"," + Dump(body).substr(1) + "\n";
  text.replace(head.size(), kHexDigits, Hash128Hex(AsBytes(text)));
  return text;
}

std::string EncodePart(const FilePart& part) {
  return Dump(PartJson(part));
}

}  // namespace heddle::checkpoint
