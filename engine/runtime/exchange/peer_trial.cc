#include "engine/runtime/exchange/peer_trial.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "base/tensor/reduction_tree.h"
#include "engine/runtime/device/peer_memory.h"

namespace heddle::runtime {

namespace {

constexpr int64_t kMostElements = 1 << 16;

/// What copies and sums use.
struct Kept {
  at::Tensor tensor;
  std::shared_ptr<const PeerArenas> arenas;
};

}  // namespace

PeerTrial::PeerTrial(Device& device, std::shared_ptr<const PeerArenas> arenas, uint64_t seed)
    : device_(device),
      arenas_(std::move(arenas)),
      seed_(seed),
      elements_(std::min(kMostElements, static_cast<int64_t>(arenas_->half / sizeof(float)))) {}

// Whole numbers, whose sums are exact in any order.
int64_t PeerTrial::Value(size_t member, int64_t element) const {
  return Philox(seed_, member, static_cast<uint64_t>(element))[0] >> 16;
}

std::byte* PeerTrial::PlaceOf(size_t member) const {
  return arenas_->memory[member].get();
}

Status PeerTrial::Put() {
  const at::Tensor pattern = device_.HostBuffer({.dtype = DType::kF32, .shape = {elements_}});
  auto* const values = static_cast<float*>(pattern.data_ptr());
  for (int64_t i = 0; i < elements_; ++i) {
    values[i] = static_cast<float>(Value(arenas_->position, i));
  }
  const Copied up = device_.Upload(pattern);
  const auto kept = std::make_shared<Kept>(Kept{up.tensor, arenas_});
  const Mark put =
      device_.peer_memory()->Copy(up.mark,
                                  {{.from = static_cast<const std::byte*>(up.tensor.data_ptr()),
                                    .to = PlaceOf(arenas_->position),
                                    .bytes = static_cast<size_t>(elements_) * sizeof(float)}},
                                  kept);
  return put.Wait(After(kLongestWait));
}

Status PeerTrial::Read() {
  PeerMemory::Addition addition{.sum = PlaceOf(arenas_->position) + arenas_->half,
                                .elements = elements_};
  std::vector<size_t> members;
  std::vector<TreeNode> nodes;
  for (size_t member = 0; member < arenas_->memory.size(); ++member) {
    HEDDLE_RETURN_IF_ERROR(Expect({member}, PlaceOf(member)));
    members.push_back(member);
    nodes.push_back({.level = 0, .index = static_cast<int64_t>(member)});
    addition.addends.push_back(PlaceOf(member));
  }
  addition.additions = AdditionOrder(nodes);
  if (addition.additions.empty()) {  // Nor does a device ever add so many.
    return Status::Ok();
  }
  const std::byte* const sum = addition.sum;
  device_.peer_memory()->Add(std::move(addition), std::make_shared<Kept>(Kept{{}, arenas_}));
  return Expect(members, sum);
}

Status PeerTrial::Expect(const std::vector<size_t>& members, const std::byte* from) {
  const auto kept = std::make_shared<Kept>(
      Kept{device_.Empty({.dtype = DType::kF32, .shape = {elements_}}), arenas_});
  const Mark copied =
      device_.peer_memory()->Copy(device_.Computed(),
                                  {{.from = from,
                                    .to = static_cast<std::byte*>(kept->tensor.data_ptr()),
                                    .bytes = static_cast<size_t>(elements_) * sizeof(float)}},
                                  kept);
  device_.Await(copied);
  const Copied down = device_.Download(kept->tensor);
  HEDDLE_RETURN_IF_ERROR(down.mark.Wait(After(kLongestWait)));
  const auto* const found = static_cast<const float*>(down.tensor.data_ptr());
  for (int64_t i = 0; i < elements_; ++i) {
    int64_t expected = 0;
    for (const size_t member : members) {
      expected += Value(member, i);
    }
    if (found[i] != static_cast<float>(expected)) {
      return DataLossError("{} read as {} instead of {} at element {}",
                           members.size() > 1 ? "the sum of all members' memory"
                                              : fmt::format("the memory of member {}", members[0]),
                           found[i], expected, i);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::runtime
