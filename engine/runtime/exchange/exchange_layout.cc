#include "engine/runtime/exchange/exchange_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace heddle::runtime {
namespace {

using graph::ExchangeForm;
using graph::Range;

int64_t LengthOf(const Range& range) {
  return range.end - range.begin;
}

Range Common(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  const int64_t end = std::min(a.end, b.end);
  return begin < end ? Range{begin, end} : Range{};
}

int64_t LastOf(const std::vector<Range>& ranges) {
  int64_t last = 0;
  for (const Range& range : ranges) {
    last = std::max(last, range.end);
  }
  return last;
}

bool AreDisjoint(std::vector<Range> ranges) {
  std::erase_if(ranges, &Range::empty);
  std::ranges::sort(ranges, {}, &Range::begin);
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      return false;
    }
  }
  return true;
}

template <typename T>
void FillWith(std::span<std::byte> out, T element) {
  for (size_t at = 0; at < out.size(); at += sizeof(T)) {
    std::memcpy(out.data() + at, &element, sizeof(T));
  }
}

}  // namespace

void FillNeutral(std::span<std::byte> out, DType dtype, comm::ReduceOp op) {
  const bool sum = op == comm::ReduceOp::kSum;
  switch (dtype) {
    case DType::kF32:
      return FillWith(out, sum ? 0x80000000U : 0xFF800000U);
    case DType::kF64:
      return FillWith(out, sum ? uint64_t{1} << 63 : uint64_t{0xFFF} << 52);
    case DType::kBF16:
      return FillWith(out, static_cast<uint16_t>(sum ? 0x8000 : 0xFF80));
    case DType::kF16:
      return FillWith(out, static_cast<uint16_t>(sum ? 0x8000 : 0xFC00));
    case DType::kI32:
      return FillWith(out, sum ? 0U : 0x80000000U);
    case DType::kI64:
      return FillWith(out, sum ? uint64_t{0} : uint64_t{1} << 63);
    case DType::kU8:
      return FillWith(out, uint8_t{0});
  }
}

ExchangeLayout::ExchangeLayout(const graph::Exchange& exchange,
                               const Shape& to,
                               DType dtype,
                               int position)
    : sent_(exchange.sent),
      received_(exchange.received),
      position_(static_cast<size_t>(position)),
      dtype_(dtype) {
  HEDDLE_CHECK(position_ < sent_.size() && sent_.size() == received_.size(),
               "member {} of an exchange of {}", position, sent_.size());
  whole_ = {0, std::max(LastOf(sent_), LastOf(received_))};
  row_bytes_ = SizeOf(dtype);
  for (size_t d = 0; d < to.size(); ++d) {
    if (d != static_cast<size_t>(exchange.dim)) {
      int64_t& side = d < static_cast<size_t>(exchange.dim) ? outer_ : row_bytes_;
      side *= to[d];
    }
  }
  switch (exchange.form) {
    case ExchangeForm::kMax:
      op_ = comm::ReduceOp::kMax;
      break;
    case ExchangeForm::kScatter:
      // Members that share rows would add them in different orders.
      collective_ = AreDisjoint(received_) ? Collective::kReduceScatter : Collective::kAllReduce;
      break;
    case ExchangeForm::kGather:
      collective_ = Collective::kAllGather;
      owned_ = graph::OwnersOf(sent_);
      break;
    case ExchangeForm::kSum:
      break;
    case ExchangeForm::kSlice:
    case ExchangeForm::kFill:
      HEDDLE_CHECK(false, "a {} sends nothing", graph::FormName(exchange.form));
  }
}

int64_t ExchangeLayout::Count(const Range& range) const {
  return outer_ * LengthOf(range) * (row_bytes_ / SizeOf(dtype_));
}

size_t ExchangeLayout::BytesOf(const Range& range) const {
  return static_cast<size_t>(outer_ * LengthOf(range) * row_bytes_);
}

std::vector<int64_t> ExchangeLayout::CountsOf(const std::vector<Range>& ranges) const {
  std::vector<int64_t> counts;
  for (const Range& range : ranges) {
    counts.push_back(Count(range));
  }
  return counts;
}

size_t ExchangeLayout::BytesOf(const std::vector<Range>& ranges) const {
  size_t bytes = 0;
  for (const Range& range : ranges) {
    bytes += BytesOf(range);
  }
  return bytes;
}

bool ExchangeLayout::LieAsWhole(const std::vector<Range>& parts) const {
  return outer_ == 1 && graph::Tiles(parts, whole_.end);
}

size_t ExchangeLayout::scratch_bytes() const {
  switch (collective_) {
    case Collective::kAllReduce:
      return ReducesInOutput() ? 0 : BytesOf(whole_);
    case Collective::kReduceScatter:
      return ScattersInput() ? 0 : BytesOf(received_);
    case Collective::kAllGather:
      return GathersInOutput() ? 0 : BytesOf(owned_);
  }
  return 0;
}

// Bytes of what the members before this one own.
size_t ExchangeLayout::OwnedBefore() const {
  return BytesOf(std::vector<Range>(owned_.begin(), owned_.begin() + position_));
}

std::optional<size_t> ExchangeLayout::input_offset() const {
  switch (collective_) {
    case Collective::kAllReduce:
      return sent() == whole_ ? std::optional<size_t>(0) : std::nullopt;
    case Collective::kReduceScatter:
      return std::nullopt;
    case Collective::kAllGather:
      return sent() == owned_[position_] ? std::optional(OwnedBefore()) : std::nullopt;
  }
  return std::nullopt;
}

// The rows that both have.
void ExchangeLayout::Copy(const Rows<const std::byte>& from, const Rows<std::byte>& to) const {
  const Range rows = Common(from.range, to.range);
  const auto bytes = static_cast<size_t>(LengthOf(rows) * row_bytes_);
  if (bytes == 0 || from.bytes.data() == to.bytes.data()) {  // The input lies at its offset.
    return;
  }
  for (int64_t i = 0; i < outer_; ++i) {
    const int64_t source = i * LengthOf(from.range) + rows.begin - from.range.begin;
    const int64_t target = i * LengthOf(to.range) + rows.begin - to.range.begin;
    std::memcpy(to.bytes.data() + target * row_bytes_, from.bytes.data() + source * row_bytes_,
                bytes);
  }
}

// The rows of `to`: this member's addends, or candidates, where it has any.
void ExchangeLayout::CopyAddends(std::span<const std::byte> input,
                                 const Rows<std::byte>& to) const {
  if (!sent().contains(to.range)) {
    FillNeutral(to.bytes, dtype_, op_);
  }
  Copy({.bytes = input, .range = sent()}, to);
}

Status ExchangeLayout::Run(comm::Communicator& group,
                           const comm::CollectiveOptions& options,
                           std::span<const std::byte> input,
                           std::span<std::byte> output,
                           std::span<std::byte> scratch) const {
  HEDDLE_CHECK(input.size() == sent_bytes() && output.size() == received_bytes() &&
                   scratch.size() == scratch_bytes(),
               "buffers of {}, {} and {} bytes for an exchange of {}, {} and {}", input.size(),
               output.size(), scratch.size(), sent_bytes(), received_bytes(), scratch_bytes());
  switch (collective_) {
    case Collective::kAllReduce:
      return AllReduce(group, options, input, output, scratch);
    case Collective::kReduceScatter:
      return ReduceScatter(group, options, input, output, scratch);
    case Collective::kAllGather:
      return AllGather(group, options, input, output, scratch);
  }
  return InternalError("an exchange without a collective");
}

Status ExchangeLayout::AllReduce(comm::Communicator& group,
                                 const comm::CollectiveOptions& options,
                                 std::span<const std::byte> input,
                                 std::span<std::byte> output,
                                 std::span<std::byte> scratch) const {
  const std::span<std::byte> all = ReducesInOutput() ? output : scratch;
  CopyAddends(input, {.bytes = all, .range = whole_});
  HEDDLE_RETURN_IF_ERROR(group.AllReduce(all, dtype_, op_, options));
  if (!ReducesInOutput()) {
    Copy({.bytes = all, .range = whole_}, {.bytes = output, .range = received()});
  }
  return Status::Ok();
}

Status ExchangeLayout::ReduceScatter(comm::Communicator& group,
                                     const comm::CollectiveOptions& options,
                                     std::span<const std::byte> input,
                                     std::span<std::byte> output,
                                     std::span<std::byte> scratch) const {
  std::span<const std::byte> parts = input;
  if (!ScattersInput()) {
    size_t at = 0;
    for (const Range& range : received_) {
      CopyAddends(input, {.bytes = scratch.subspan(at, BytesOf(range)), .range = range});
      at += BytesOf(range);
    }
    parts = scratch;
  }
  return group.ReduceScatter(parts, output, CountsOf(received_), dtype_, op_, options);
}

Status ExchangeLayout::AllGather(comm::Communicator& group,
                                 const comm::CollectiveOptions& options,
                                 std::span<const std::byte> input,
                                 std::span<std::byte> output,
                                 std::span<std::byte> scratch) const {
  const std::span<std::byte> parts = GathersInOutput() ? output : scratch;
  const Range& own = owned_[position_];
  const auto mine = parts.subspan(OwnedBefore(), BytesOf(own));
  Copy({.bytes = input, .range = sent()}, {.bytes = mine, .range = own});
  HEDDLE_RETURN_IF_ERROR(group.AllGather(mine, parts, CountsOf(owned_), dtype_, options));
  size_t at = 0;
  for (size_t i = 0; !GathersInOutput() && i < owned_.size(); ++i) {
    const size_t bytes = BytesOf(owned_[i]);
    Copy({.bytes = parts.subspan(at, bytes), .range = owned_[i]},
         {.bytes = output, .range = received()});
    at += bytes;
  }
  return Status::Ok();
}

}  // namespace heddle::runtime
