#include "engine/runtime/exchange/peer_sum.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace heddle::runtime {

using program::Instruction;

namespace {

/// The most contributions of a member; one without any adds in the place of a first one.
size_t MostNodes(const Instruction& instruction) {
  size_t most = 1;
  for (const auto& nodes : instruction.contributions) {
    most = std::max(most, nodes.size());
  }
  return most;
}

struct Contribution {
  TreeNode node;
  size_t member = 0;
  size_t index = 0;
};

// Ascending.
std::vector<Contribution> ContributionsOf(const Instruction& instruction) {
  std::vector<Contribution> all;
  for (size_t member = 0; member < instruction.contributions.size(); ++member) {
    const auto& nodes = instruction.contributions[member];
    for (size_t i = 0; i < nodes.size(); ++i) {
      all.push_back({.node = nodes[i], .member = member, .index = i});
    }
  }
  std::ranges::sort(all, {}, [](const Contribution& one) { return one.node.first(); });
  return all;
}

}  // namespace

size_t HalfFor(const Instruction& instruction, int64_t elements, DType dtype) {
  // One element more a slice, because pieces are rounded (RangesOf).
  const auto most = elements + static_cast<int64_t>(instruction.group.size());
  const auto bytes = static_cast<size_t>(most * SizeOf(dtype));
  return (bytes + kSumAlignment - 1) / kSumAlignment * kSumAlignment * MostNodes(instruction);
}

std::vector<uint8_t> AdditionsOf(const Instruction& instruction) {
  std::vector<TreeNode> nodes;
  for (const Contribution& contribution : ContributionsOf(instruction)) {
    nodes.push_back(contribution.node);
  }
  return AdditionOrder(nodes);
}

PeerSum::PeerSum(std::vector<SumPart> parts,
                 int64_t elements,
                 DType dtype,
                 std::shared_ptr<const PeerArenas> arenas)
    : instruction_(*parts.front().instruction),
      parts_(std::move(parts)),
      dtype_(dtype),
      arenas_(std::move(arenas)),
      block_(arenas_->half / MostNodes(instruction_) / kSumAlignment * kSumAlignment) {
  const auto members = static_cast<int64_t>(instruction_.group.size());
  const std::vector<int64_t>& rows = instruction_.rows;
  const int64_t all_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  for (int64_t i = 0, row = 0; i <= members; ++i) {
    begins_.push_back(rows.empty() ? elements * i / members : elements / all_rows * row);
    row += rows.empty() || i == members ? 0 : rows[static_cast<size_t>(i)];
  }
  const int64_t most = static_cast<int64_t>(block_) / SizeOf(dtype_) - members;
  pieces_ = std::max<int64_t>(1, (elements + most - 1) / most);
}

std::vector<PeerSum::Range> PeerSum::RangesOf(int64_t piece) const {
  std::vector<Range> ranges;
  int64_t place = 0;
  for (size_t i = 0; i + 1 < begins_.size(); ++i) {
    const int64_t all = begins_[i + 1] - begins_[i];
    const int64_t first = all * piece / pieces_;
    const int64_t count = all * (piece + 1) / pieces_ - first;
    ranges.push_back({.first = begins_[i] + first, .count = count, .place = place});
    place += count;
  }
  return ranges;
}

std::byte* PeerSum::PlaceOf(Leaf leaf, const Range& range, size_t half) const {
  return arenas_->memory[leaf.member].get() + half * arenas_->half + leaf.index * block_ +
         Bytes(range.place);
}

namespace {

/// Calls visit(memory, elements, at) for each stretch of memory that the elements from `first` on have
/// in tensors that follow each other; `at`: elements behind the first one.
template <typename TensorOf, typename Visit>
void ForEachStretch(const std::vector<SumPart>& parts,
                    const TensorOf& tensor_of,
                    std::pair<int64_t, int64_t> range,
                    const Visit& visit) {
  const auto [first, count] = range;
  int64_t begin = 0;
  for (const SumPart& part : parts) {
    const at::Tensor& tensor = tensor_of(part);
    const int64_t end = begin + (tensor.defined() ? tensor.numel() : 0);
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + count);
    if (from < to) {
      visit(static_cast<std::byte*>(tensor.data_ptr()) + (from - begin) * tensor.element_size(),
            to - from, from - first);
    }
    begin = end;
  }
}

}  // namespace

std::vector<PeerMemory::Stretch> PeerSum::Put(int64_t piece, size_t half) const {
  std::vector<PeerMemory::Stretch> stretches;
  for (size_t node = 0; node < parts_.front().values.size(); ++node) {
    for (const Range& range : RangesOf(piece)) {
      std::byte* const to = PlaceOf({.member = arenas_->position, .index = node}, range, half);
      ForEachStretch(
          parts_, [node](const SumPart& part) -> const at::Tensor& { return part.values[node]; },
          {range.first, range.count},
          [&](const std::byte* from, int64_t elements, int64_t at) {
            stretches.push_back({.from = from, .to = to + Bytes(at), .bytes = Bytes(elements)});
          });
    }
  }
  return stretches;
}

PeerMemory::Addition PeerSum::Add(int64_t piece, size_t half) const {
  const Range range = RangesOf(piece)[arenas_->position];
  PeerMemory::Addition addition{
      .additions = AdditionsOf(instruction_),
      .sum = PlaceOf({.member = arenas_->position, .index = 0}, range, half),
      .elements = range.count,
      .dtype = dtype_};
  for (const Contribution& one : ContributionsOf(instruction_)) {
    addition.addends.push_back(PlaceOf({.member = one.member, .index = one.index}, range, half));
  }
  return addition;
}

std::vector<PeerMemory::Stretch> PeerSum::Take(int64_t piece, size_t half) const {
  const std::vector<Range> ranges = RangesOf(piece);
  const bool own_only = !instruction_.rows.empty();
  std::vector<PeerMemory::Stretch> stretches;
  for (size_t member = 0; member < ranges.size(); ++member) {
    if (own_only && member != arenas_->position) {
      continue;
    }
    const Range& range = ranges[member];
    const std::byte* const from = PlaceOf({.member = member, .index = 0}, range, half);
    ForEachStretch(
        parts_, [](const SumPart& part) -> const at::Tensor& { return part.output; },
        {range.first - (own_only ? begins_[member] : 0), range.count},
        [&](std::byte* to, int64_t elements, int64_t at) {
          stretches.push_back({.from = from + Bytes(at), .to = to, .bytes = Bytes(elements)});
        });
  }
  return stretches;
}

}  // namespace heddle::runtime
