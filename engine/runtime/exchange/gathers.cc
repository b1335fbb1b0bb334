#include "engine/runtime/exchange/gathers.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {

void Gathers::Begin(const GatherPart& part) {
  const auto own = static_cast<size_t>(part.position);
  const int64_t first =
      std::accumulate(part.rows.begin(), part.rows.begin() + part.position, int64_t{0});
  const at::Tensor kept = part.whole.narrow(0, first, part.rows[own]);
  Begun begun{.parameter = part.parameter, .whole = part.whole, .buffer = {}};
  if (!device_.is_host() || !part.whole.is_contiguous()) {
    begun.buffer = make_buffer_(part.type);
  }
  Copied mine;
  if (device_.is_host()) {
    mine = device_.Download(kept);
  } else {  // To where the gather leaves it.
    mine.tensor = begun.buffer.narrow(0, first, part.rows[own]);
    mine.mark = device_.DownloadInto(kept, mine.tensor);
  }
  const int64_t row = ElementCount(part.type.shape) / part.type.shape[0];
  std::vector<int64_t> counts;
  for (const int64_t rows : part.rows) {
    counts.push_back(rows * row);
  }
  const comm::CollectiveOptions options{.group = part.group, .tag = part.tag, .deadline = {}};
  calls_.Begin(next_, mine.mark,
               [group = group_, rows = mine.tensor,
                target = begun.buffer.defined() ? begun.buffer : begun.whole,
                counts = std::move(counts), dtype = part.type.dtype, options] {
                 return group->AllGather(BytesOf(rows), BytesOf(target), counts, dtype, options);
               });
  begun_.emplace(next_++, std::move(begun));
}

Result<Time> Gathers::Await(graph::ParameterId parameter) {
  Time ended{};
  for (auto begun = begun_.begin(); begun != begun_.end();) {
    if (begun->second.parameter != parameter) {
      ++begun;
      continue;
    }
    const Begun gather = std::move(begun->second);
    const size_t call = begun->first;
    begun = begun_.erase(begun);
    HEDDLE_ASSIGN_OR_RETURN(const Time at, calls_.Await(call));
    ended = std::max(ended, at);
    if (gather.buffer.defined()) {
      const Copied copied = device_.Upload(gather.buffer);
      device_.Await(copied.mark);
      device_.Prepare(
          [whole = gather.whole, rows = copied.tensor]() mutable { whole.copy_(rows); });
    }
  }
  return ended;
}

}  // namespace heddle::runtime
