#include "comm/collective/collective.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace heddle::comm {

// Messages that a step waits for in both directions must not be behind bulk. The rest of a large
// gather is bulk itself.
bool Collective::IsUrgent(Phase phase) const {
  return urgent_ || phase == Phase::kBarrierUp || phase == Phase::kBarrierDown ||
         phase == Phase::kGatherUp || phase == Phase::kGatherDown;
}

Result<std::unique_ptr<Collective>> Collective::Begin(Group& group,
                                                      const CollectiveOptions& options,
                                                      const CallNumber& number) {
  std::vector<int> ranks(options.group.begin(), options.group.end());
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return InvalidArgumentError("rank {} is twice in the collective's group", *twice);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), group.options().rank);
  if (own == ranks.end() || sorted.front() < 0 || sorted.back() >= group.size()) {
    return InvalidArgumentError("rank {} is not in the collective's group", group.options().rank);
  }
  const auto position = static_cast<int>(own - ranks.begin());
  const Deadline deadline = options.deadline.value_or(After(group.options().operation_timeout));
  return std::unique_ptr<Collective>(
      new Collective(group, std::move(ranks), position, number, options.urgent, deadline));
}

std::unique_ptr<Collective> Collective::Among(const std::vector<int>& positions) const {
  std::vector<int> ranks;
  int own = -1;
  for (const int position : positions) {
    own = position == position_ ? static_cast<int>(ranks.size()) : own;
    ranks.push_back(ranks_[static_cast<size_t>(position)]);
  }
  HEDDLE_CHECK(own >= 0, "a call among others");
  return std::unique_ptr<Collective>(
      new Collective(group_, std::move(ranks), own, number_, urgent_, deadline_));
}

Collective::~Collective() {
  CancelAll();
  for (ScratchPool::Piece& piece : scratch_) {
    group_.scratch().Return(std::move(piece));
  }
}

std::span<std::byte> Collective::Scratch(int64_t bytes) {
  scratch_.push_back(group_.scratch().Take(static_cast<size_t>(bytes)));
  return {scratch_.back().memory.get(), static_cast<size_t>(bytes)};
}

void Collective::CancelAll() {
  for (const Pending& pending : in_flight_) {
    if (!pending->Done()) {
      pending->Cancel(CancelledError("the collective ended with an error"));
    }
  }
  in_flight_.clear();
}

void Collective::Keep(const Pending& pending) {
  in_flight_.push_back(pending);
  if (in_flight_.size() >= prune_at_) {
    std::erase_if(in_flight_,
                  [](const Pending& other) { return other->Done() && other->Wait(Time()).ok(); });
    prune_at_ = std::max<size_t>(256, 2 * in_flight_.size());
  }
}

MessageKey Collective::KeyOf(Phase phase, int64_t major, int64_t minor) const {
  HEDDLE_CHECK(major >> kMajorBits == 0 && minor >> kMinorBits == 0, "message {}.{}", major, minor);
  return {.tag = number_.tag,
          .space = (static_cast<uint64_t>(phase) << (kSignatureBits + kMajorBits + kMinorBits)) |
                   number_.space | (static_cast<uint64_t>(major) << kMinorBits) |
                   static_cast<uint64_t>(minor)};
}

Status Collective::Wait(const Pending& pending) {
  CallWaits& waits = group_.waits();
  return waits.Conclude(waits.Wait(ranks_, number_, *pending, deadline_));
}

Collective::Pending Collective::Send(
    int to, Phase phase, int64_t major, int64_t minor, std::span<const std::byte> data) {
  Pending pending = group_.Send(ranks_[static_cast<size_t>(to)], KeyOf(phase, major, minor), data,
                                IsUrgent(phase));
  Keep(pending);
  return pending;
}

Collective::Pending Collective::Recv(
    int from, Phase phase, int64_t major, int64_t minor, std::span<std::byte> data) {
  Pending pending = group_.Recv(ranks_[static_cast<size_t>(from)], KeyOf(phase, major, minor), data,
                                IsUrgent(phase));
  Keep(pending);
  return pending;
}

Status Collective::WaitAll() {
  for (const Pending& pending : in_flight_) {
    HEDDLE_RETURN_IF_ERROR(Wait(pending));
  }
  in_flight_.clear();
  return Status::Ok();
}

Segments Segments::Even(int64_t elements, int members) {
  Segments segments;
  for (int64_t i = 0; i <= members; ++i) {
    segments.first.push_back(EvenBegin(elements, members, i));
  }
  return segments;
}

Result<Segments> Segments::FromCounts(std::span<const int64_t> counts, int members) {
  if (counts.size() != static_cast<size_t>(members)) {
    return InvalidArgumentError("{} counts for a group of {}", counts.size(), members);
  }
  Segments segments;
  segments.first.push_back(0);
  for (const int64_t count : counts) {
    if (count < 0 || count > std::numeric_limits<int64_t>::max() / 16 - segments.total()) {
      return InvalidArgumentError("a share of {} elements", count);
    }
    segments.first.push_back(segments.total() + count);
  }
  return segments;
}

ShareSizes SizesOf(const Segments& segments, int64_t element) {
  ShareSizes sizes{.total = segments.total() * element,
                   .largest = segments.count(0) * element,
                   .smallest = segments.count(0) * element};
  for (int i = 1; i + 1 < static_cast<int>(segments.first.size()); ++i) {
    sizes.largest = std::max(sizes.largest, segments.count(i) * element);
    sizes.smallest = std::min(sizes.smallest, segments.count(i) * element);
  }
  return sizes;
}

Status CheckSize(size_t bytes) {
  // Partial sums of 16-bit numbers have twice the bytes.
  constexpr size_t kMaxBytes = static_cast<size_t>(kPieceBytes) << (kMinorBits - 1);
  if (bytes > kMaxBytes) {
    return InvalidArgumentError("{} bytes in one call; the most is {}: call for parts of it", bytes,
                                kMaxBytes);
  }
  return Status::Ok();
}

}  // namespace heddle::comm
