/// \file
/// A model of any format as raw elements, and back: what pytorch_test.py compares with PyTorch.
/// Usage: pytorch_sample read MODEL FOLDER   every tensor as FOLDER/NUMBER.bin, a line each on
/// stdout
///        pytorch_sample write MODEL COPY    reads MODEL, writes its tensors as COPY
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/system/file.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {
namespace {

Result<Bytes> Whole(const TensorSource& source, size_t tensor) {
  const FileTensor& facts = source.tensors()[tensor];
  Bytes bytes(static_cast<size_t>(facts.bytes));
  HEDDLE_RETURN_IF_ERROR(source.Read(tensor, WholeBox(facts.shape), bytes));
  return bytes;
}

Status ReadAll(const TensorSource& source, const std::string& folder) {
  for (size_t t = 0; t < source.tensors().size(); ++t) {
    const FileTensor& facts = source.tensors()[t];
    std::string dtype = "-";
    if (facts.dtype) {
      dtype = DTypeName(*facts.dtype);
      HEDDLE_ASSIGN_OR_RETURN(const Bytes bytes, Whole(source, t));
      HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(
          fmt::format("{}/{}.bin", folder, t),
          std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
    }
    fmt::print("{} {} {}\n", facts.name, dtype, facts.type);
  }
  return Status::Ok();
}

Status WriteAll(const TensorSource& source, const std::string& copy) {
  SinkRequest request{.path = copy, .tensors = {}, .config = "{}", .max_shard_bytes = 2000};
  for (const FileTensor& facts : source.tensors()) {
    if (facts.dtype) {
      request.tensors.push_back(
          {.name = facts.name, .role = {}, .dtype = *facts.dtype, .shape = facts.shape});
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const Format* format, FindFormat("pytorch"));
  HEDDLE_ASSIGN_OR_RETURN(auto sink, format->create(std::move(request)));
  for (size_t t = 0; t < source.tensors().size(); ++t) {
    if (source.tensors()[t].dtype) {
      HEDDLE_ASSIGN_OR_RETURN(const Bytes bytes, Whole(source, t));
      HEDDLE_RETURN_IF_ERROR(sink->Append(bytes));
    }
  }
  return sink->Finish();
}

Status Run(std::string_view command, const std::string& model, const std::string& place) {
  HEDDLE_ASSIGN_OR_RETURN(const auto source, OpenModel(model));
  return command == "read" ? ReadAll(*source, place) : WriteAll(*source, place);
}

}  // namespace
}  // namespace heddle::checkpoint

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: pytorch_sample read|write MODEL PLACE\n");
    return 2;
  }
  const heddle::Status status = heddle::checkpoint::Run(arguments[1], arguments[2], arguments[3]);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
