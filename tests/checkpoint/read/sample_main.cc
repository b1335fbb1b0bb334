/// \file
/// Writes a checkpoint and, beside it, the raw elements of every tensor as TENSOR_NUMBER.bin in the
/// manifest's order: what h5py_test.py compares. Usage: checkpoint_sample FOLDER
#include <cstdio>
#include <initializer_list>

#include "base/tensor/half.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

Status WriteSample(const std::string& folder) {
  Random random(5);
  State state;
  // In the order of the manifest: by role, then name.
  AddTensor(state, {"h.0.weight", "exp_avg", DType::kBF16, {700, 500}}, random);
  AddTensor(state, {"h.0.weight", "exp_avg_sq", DType::kF32, {700, 500}}, random);
  AddTensor(state, {"bias", "master", DType::kF16, {77}}, random);
  AddTensor(state, {"caf\xC3\xA9/50% @home", "master", DType::kF32, {3, 1, 5}}, random);
  AddTensor(state, {"empty", "master", DType::kF32, {0, 4}}, random);
  AddTensor(state, {"h.0.weight", "master", DType::kF32, {700, 500}}, random);
  AddTensor(state, {"scalar", "master", DType::kF32, {}}, random);
  AddTensor(state, {"steps", "master", DType::kI64, {9}}, random);
  // Moments are stored rounded: these lose nothing, so that their elements are what is stored.
  Bytes narrow(state.bytes[1].size() / 2);
  RoundFromF32(state.bytes[1], narrow, DType::kBF16);
  WidenToF32(narrow, DType::kBF16, state.bytes[1]);
  state.tensors.push_back({"h.0.weight", "weight", DType::kBF16, {700, 500}});
  state.bytes.emplace_back(narrow.size());
  RoundFromF32(state.bytes[5], state.bytes.back(), DType::kBF16);
  std::vector<Piece> pieces = {{.tensor = 0, .box = {{0, 0}, {701 / 2, 500}}, .worker = 0},
                               {.tensor = 0, .box = {{350, 0}, {350, 123}}, .worker = 1},
                               {.tensor = 0, .box = {{350, 123}, {350, 377}}, .worker = 1},
                               {.tensor = 3, .box = {{0, 0, 0}, {3, 1, 2}}, .worker = 0},
                               {.tensor = 3, .box = {{0, 0, 2}, {3, 1, 3}}, .worker = 1}};
  for (const size_t t : std::initializer_list<size_t>{1, 2, 4, 5, 6, 7}) {
    pieces.push_back({.tensor = t, .box = WholeBox(state.tensors[t].shape), .worker = t % 2});
  }
  pieces.push_back({.tensor = 8, .box = WholeBox({700, 500}), .worker = 1});  // With its master.
  metrics::Registry metrics;
  const SaveSetup setup{.root = folder,
                        .step = 40,
                        .generation = 3,
                        .workers = 2,
                        .chunk_bytes = 100'000,
                        .round_moments = true};
  HEDDLE_RETURN_IF_ERROR(Save(setup, state, pieces, metrics).status());
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    const auto* text = reinterpret_cast<const char*>(state.bytes[t].data());
    HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(fmt::format("{}/{}.bin", folder, t),
                                               std::string_view(text, state.bytes[t].size())));
  }
  return Status::Ok();
}

}  // namespace
}  // namespace heddle::checkpoint

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: checkpoint_sample FOLDER\n");
    return 2;
  }
  const heddle::Status status = heddle::checkpoint::WriteSample(arguments[1]);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
