#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/strict_json.h"

namespace heddle::checkpoint {

namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 8;

Result<const Json*> Field(const Json& object, const char* name, Json::value_t type) {
  const auto field = object.find(name);
  if (field == object.end()) {
    return DataLossError("field '{}' is missing", name);
  }
  const bool number = type == Json::value_t::number_integer && field->is_number_integer();
  if (!number && field->type() != type) {
    return DataLossError("field '{}' is a {}", name, field->type_name());
  }
  return &*field;
}

Result<int64_t> AsInteger(const Json& value, const char* name) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})) {
    return DataLossError("field '{}' is not a 64-bit integer", name);
  }
  return value.get<int64_t>();
}

Result<int64_t> Count(const Json& object, const char* name) {
  HEDDLE_ASSIGN_OR_RETURN(const Json* field, Field(object, name, Json::value_t::number_integer));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t value, AsInteger(*field, name));
  if (value < 0) {
    return DataLossError("field '{}' is negative", name);
  }
  return value;
}

Result<std::string> Text(const Json& object, const char* name) {
  HEDDLE_ASSIGN_OR_RETURN(const Json* field, Field(object, name, Json::value_t::string));
  return field->get<std::string>();
}

Result<double> Number(const Json& object, const char* name) {
  const auto field = object.find(name);
  if (field == object.end() || !field->is_number()) {
    return DataLossError("field '{}' is not a number", name);
  }
  return field->get<double>();
}

Result<Shape> ReadShape(const Json& object, const char* name) {
  HEDDLE_ASSIGN_OR_RETURN(const Json* field, Field(object, name, Json::value_t::array));
  if (field->size() > kMaxRank) {
    return DataLossError("field '{}' has {} dimensions", name, field->size());
  }
  Shape shape;
  for (const Json& extent : *field) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t value, AsInteger(extent, name));
    shape.push_back(value);
  }
  return shape;
}

Result<uint64_t> ParseHex64(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    const auto digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) {
      return DataLossError("'{}' is not a hexadecimal number", digits);
    }
    value = value << 4 | digit;
  }
  return digits.size() == 16 ? Result<uint64_t>(value)
                             : DataLossError("'{}' has not 16 hexadecimal digits", digits);
}

Result<Digest> ReadDigest(const Json& object, const char* name) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, Text(object, name));
  if (text.size() != kHexDigits) {
    return DataLossError("field '{}' has not 32 digits", name);
  }
  Digest digest;
  HEDDLE_ASSIGN_OR_RETURN(digest.high, ParseHex64(std::string_view(text).substr(0, 16)));
  HEDDLE_ASSIGN_OR_RETURN(digest.low, ParseHex64(std::string_view(text).substr(16)));
  return digest;
}

Result<TensorInfo> ReadTensorInfo(const Json& json) {
  if (!json.is_object()) {
    return DataLossError("a tensor is no object");
  }
  TensorInfo info;
  HEDDLE_ASSIGN_OR_RETURN(info.name, Text(json, "name"));
  HEDDLE_ASSIGN_OR_RETURN(info.role, Text(json, "role"));
  HEDDLE_ASSIGN_OR_RETURN(const std::string dtype, Text(json, "dtype"));
  HEDDLE_ASSIGN_OR_RETURN(info.dtype, ParseDType(dtype));
  HEDDLE_ASSIGN_OR_RETURN(info.shape, ReadShape(json, "shape"));
  return info;
}

/// The role that a box is derived from.
Result<std::string> ReadDerived(const Json& box) {
  HEDDLE_ASSIGN_OR_RETURN(const Json* derived, Field(box, "derived", Json::value_t::object));
  HEDDLE_ASSIGN_OR_RETURN(std::string role, Text(*derived, "role"));
  HEDDLE_ASSIGN_OR_RETURN(const std::string rounding, Text(*derived, "rounding"));
  if (role.empty() || rounding != kNearestEven) {
    return DataLossError("a box is derived from role '{}' by rounding '{}'", role, rounding);
  }
  return role;
}

Result<BoxRecord> ReadBox(const Json& json) {
  if (!json.is_object()) {
    return DataLossError("a box is no object");
  }
  BoxRecord box;
  HEDDLE_ASSIGN_OR_RETURN(box.file, Count(json, "file"));
  HEDDLE_ASSIGN_OR_RETURN(box.dataset, Text(json, "dataset"));
  HEDDLE_ASSIGN_OR_RETURN(box.box.offset, ReadShape(json, "offset"));
  HEDDLE_ASSIGN_OR_RETURN(box.box.extent, ReadShape(json, "extent"));
  HEDDLE_ASSIGN_OR_RETURN(box.chunk, ReadShape(json, "chunk"));
  HEDDLE_ASSIGN_OR_RETURN(box.digest, ReadDigest(json, "digest"));
  HEDDLE_ASSIGN_OR_RETURN(const Json* chunks, Field(json, "chunks", Json::value_t::array));
  box.chunks.reserve(chunks->size());
  for (const Json& entry : *chunks) {
    if (!entry.is_array() || entry.size() != 3 || !entry[2].is_string()) {
      return DataLossError("a chunk is not [address, bytes, hash]");
    }
    ChunkRecord chunk;
    HEDDLE_ASSIGN_OR_RETURN(chunk.address, AsInteger(entry[0], "address"));
    HEDDLE_ASSIGN_OR_RETURN(chunk.bytes, AsInteger(entry[1], "bytes"));
    HEDDLE_ASSIGN_OR_RETURN(chunk.hash, ParseHex64(entry[2].get_ref<const std::string&>()));
    box.chunks.push_back(chunk);
  }
  if (json.contains("stored_as")) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string type, Text(json, "stored_as"));
    HEDDLE_ASSIGN_OR_RETURN(box.stored_as, ParseDType(type));
  }
  if (json.contains("derived")) {
    HEDDLE_ASSIGN_OR_RETURN(box.derived_from, ReadDerived(json));
  }
  if (json.contains("raw")) {
    HEDDLE_ASSIGN_OR_RETURN(const Json* raw, Field(json, "raw", Json::value_t::boolean));
    box.raw = raw->get<bool>();
  }
  return box;
}

Result<FileRecord> ReadFileRecord(const Json& json) {
  if (!json.is_object()) {
    return DataLossError("a file is no object");
  }
  FileRecord file;
  HEDDLE_ASSIGN_OR_RETURN(file.name, Text(json, "name"));
  HEDDLE_ASSIGN_OR_RETURN(file.bytes, Count(json, "bytes"));
  HEDDLE_ASSIGN_OR_RETURN(file.hash, Text(json, "blocks_xxh3_128"));
  return file;
}

Result<Manifest> ReadManifest(const Json& json) {
  if (!json.is_object()) {
    return DataLossError("not an object");
  }
  Manifest manifest;
  HEDDLE_ASSIGN_OR_RETURN(const std::string format, Text(json, "format"));
  if (format != "heddle-checkpoint") {
    return DataLossError("format '{}'", format);
  }
  HEDDLE_ASSIGN_OR_RETURN(manifest.version, Count(json, "version"));
  if (manifest.version != kFormatVersion) {
    return UnimplementedError(
        "format version {}: this build reads version {}{}", manifest.version, kFormatVersion,
        manifest.version < kFormatVersion ? "; the build that wrote it converts it to safetensors"
                                          : "");
  }
  HEDDLE_ASSIGN_OR_RETURN(manifest.step, Count(json, "step"));
  HEDDLE_ASSIGN_OR_RETURN(manifest.generation, Count(json, "generation"));
  HEDDLE_ASSIGN_OR_RETURN(manifest.created, Number(json, "created"));
  HEDDLE_ASSIGN_OR_RETURN(manifest.job.job_hash, Text(json, "job_hash"));
  HEDDLE_ASSIGN_OR_RETURN(manifest.job.job_yaml, Text(json, "job"));
  // Checkpoints of the first builds lack it.
  if (json.contains("model")) {
    HEDDLE_ASSIGN_OR_RETURN(manifest.job.model, Text(json, "model"));
  }
  HEDDLE_ASSIGN_OR_RETURN(manifest.job.plan, Text(json, "plan"));
  HEDDLE_ASSIGN_OR_RETURN(manifest.job.extra, Text(json, "extra"));
  HEDDLE_ASSIGN_OR_RETURN(manifest.job.samples_consumed, Count(json, "samples_consumed"));
  HEDDLE_ASSIGN_OR_RETURN(const Json* files, Field(json, "files", Json::value_t::array));
  for (const Json& entry : *files) {
    HEDDLE_ASSIGN_OR_RETURN(auto file, ReadFileRecord(entry));
    manifest.files.push_back(std::move(file));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Json* tensors, Field(json, "tensors", Json::value_t::array));
  for (const Json& entry : *tensors) {
    TensorRecord tensor;
    HEDDLE_ASSIGN_OR_RETURN(tensor.info, ReadTensorInfo(entry));
    HEDDLE_ASSIGN_OR_RETURN(tensor.digest, ReadDigest(entry, "digest"));
    HEDDLE_ASSIGN_OR_RETURN(const Json* boxes, Field(entry, "boxes", Json::value_t::array));
    for (const Json& box_json : *boxes) {
      auto box = ReadBox(box_json);
      HEDDLE_RETURN_IF_ERROR(
          box.status().WithContext("tensor '{}' ({})", tensor.info.name, tensor.info.role));
      tensor.boxes.push_back(*std::move(box));
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

Result<FilePart> ReadPart(const Json& json) {
  if (!json.is_object()) {
    return DataLossError("not an object");
  }
  FilePart part;
  HEDDLE_ASSIGN_OR_RETURN(part.step, Count(json, "step"));
  HEDDLE_ASSIGN_OR_RETURN(part.generation, Count(json, "generation"));
  HEDDLE_ASSIGN_OR_RETURN(part.raw_bytes, Count(json, "raw_bytes"));
  HEDDLE_ASSIGN_OR_RETURN(part.seconds, Number(json, "seconds"));
  HEDDLE_ASSIGN_OR_RETURN(const Json* file, Field(json, "file", Json::value_t::object));
  HEDDLE_ASSIGN_OR_RETURN(part.file, ReadFileRecord(*file));
  HEDDLE_ASSIGN_OR_RETURN(const Json* boxes, Field(json, "boxes", Json::value_t::array));
  for (const Json& entry : *boxes) {
    FilePart::PartBox box;
    HEDDLE_ASSIGN_OR_RETURN(box.record, ReadBox(entry));
    HEDDLE_ASSIGN_OR_RETURN(const Json* tensor, Field(entry, "tensor", Json::value_t::object));
    HEDDLE_ASSIGN_OR_RETURN(box.tensor, ReadTensorInfo(*tensor));
    part.boxes.push_back(std::move(box));
  }
  return part;
}

/// The text with the checksum's digits as zeros, and the digits; an error when the head is not
/// ours.
Status CheckSum(std::string_view text) {
  if (!text.starts_with(kManifestHead)) {
    return DataLossError("does not begin as a Heddle manifest");
  }
  const size_t field = text.find(kChecksumField, kManifestHead.size());
  if (field == std::string_view::npos || field > kManifestHead.size() + 20 ||
      text.size() < field + kChecksumField.size() + kHexDigits) {
    return DataLossError("has no checksum");
  }
  const size_t digits = field + kChecksumField.size();
  std::string zeroed(text);
  zeroed.replace(digits, kHexDigits, kHexDigits, '0');
  if (Hash128Hex(AsBytes(zeroed)) != text.substr(digits, kHexDigits)) {
    return DataLossError("the checksum does not match the text");
  }
  return Status::Ok();
}

}  // namespace

Result<Manifest> ParseManifest(std::string_view text) {
  HEDDLE_RETURN_IF_ERROR(CheckSum(text));
  return ParseManifestBody(text);
}

Result<Manifest> ParseManifestBody(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, kMaxDepth));
  auto manifest = ReadManifest(json);
  if (!manifest.ok()) {
    return manifest.status().code() == StatusCode::kUnimplemented
               ? manifest.status()
               : Status(StatusCode::kDataLoss, manifest.status().message());
  }
  HEDDLE_RETURN_IF_ERROR(ValidateManifest(*manifest));
  return manifest;
}

Result<FilePart> DecodePart(std::string_view text) {
  Result<FilePart> part = InvalidArgumentError("");
  auto json = ParseStrictJson(text, kMaxDepth);
  part = json.ok() ? ReadPart(*json) : Result<FilePart>(json.status());
  if (!part.ok()) {
    return Status(StatusCode::kInvalidArgument, "a writer's report: " + part.status().message());
  }
  return part;
}

}  // namespace heddle::checkpoint
