#include "engine/runtime/exchange/gathers.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {

void Gathers::Begin(const GatherPart& part) {
  HEDDLE_CHECK(group_ != nullptr, "parameter {} is gathered by one worker", part.parameter);
  const auto own = static_cast<size_t>(part.position);
  const int64_t first =
      std::accumulate(part.rows.begin(), part.rows.begin() + part.position, int64_t{0});
  const Copied mine = device_.Download(part.whole.narrow(0, first, part.rows[own]));
  Begun begun{.parameter = part.parameter, .whole = part.whole, .buffer = {}, .work = {}};
  if (!device_.is_host() || !part.whole.is_contiguous()) {
    begun.buffer = make_buffer_(part.type);
  }
  const int64_t row = ElementCount(part.type.shape) / part.type.shape[0];
  std::vector<int64_t> counts;
  for (const int64_t rows : part.rows) {
    counts.push_back(rows * row);
  }
  const at::Tensor& target = begun.buffer.defined() ? begun.buffer : begun.whole;
  begun.work = group_->Start(
      [this, mine, target, counts = std::move(counts), dtype = part.type.dtype, group = part.group,
       tag = part.tag] {
        const Status downloaded = WaitUnless(abandoned_, mine.mark);
        if (!downloaded.ok()) {
          group_->Abort(downloaded);
          return downloaded;
        }
        const comm::CollectiveOptions options{.group = group, .tag = tag, .deadline = {}};
        return group_->AllGather(BytesOf(mine.tensor), BytesOf(target), counts, dtype, options);
      },
      /*urgent=*/false);
  begun_.push_back(std::move(begun));
}

Result<Time> Gathers::Await(graph::ParameterId parameter) {
  Time ended{};
  for (Begun& begun : begun_) {
    if (begun.parameter != parameter) {
      continue;
    }
    HEDDLE_RETURN_IF_ERROR(begun.work.Wait());
    ended = std::max(ended, begun.work.finished_at());
    if (begun.buffer.defined()) {
      const Copied copied = device_.Upload(begun.buffer);
      device_.Await(copied.mark);
      device_.Prepare([whole = begun.whole, rows = copied.tensor]() mutable { whole.copy_(rows); });
    }
  }
  std::erase_if(begun_, [&](const Begun& begun) { return begun.parameter == parameter; });
  return ended;
}

Status Gathers::Finish() {
  Status first;
  for (const Begun& begun : begun_) {
    const Status status = begun.work.Wait();
    if (first.ok()) {
      first = status;
    }
  }
  begun_.clear();
  return first;
}

void Gathers::Abandon(const Status& reason) {
  if (group_ == nullptr) {
    return;
  }
  group_->Abort(reason);
  abandoned_.store(true);
  Finish().IgnoreError("the step has failed already");
  abandoned_.store(false);
}

}  // namespace heddle::runtime
