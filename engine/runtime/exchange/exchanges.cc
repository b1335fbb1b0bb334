#include "engine/runtime/exchange/exchanges.h"

#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/exchange/exchange_layout.h"

namespace heddle::runtime {
namespace {

using graph::Range;

/// The rows `range` of a tensor that has the rows `has`.
at::Tensor RowsOf(const at::Tensor& tensor, int dim, const Range& has, const Range& range) {
  if (tensor.dim() == 0 || has == range) {
    return tensor;
  }
  return tensor.narrow(dim, range.begin - has.begin, range.end - range.begin);
}

std::span<std::byte> MemoryOf(const at::Tensor& tensor) {
  return tensor.defined() ? BytesOf(tensor) : std::span<std::byte>();
}

}  // namespace

at::Tensor MakeAlone(Device& device, const ExchangePart& part) {
  const graph::Exchange& exchange = *part.exchange;
  const auto position = static_cast<size_t>(part.position);
  const Range sent = exchange.sent[position];
  const Range received = exchange.received[position];
  at::Tensor made = device.Empty(part.to);
  if (exchange.form == graph::ExchangeForm::kSlice) {
    HEDDLE_CHECK(part.value.defined() && sent.contains(received), "a slice of what is not there");
    device.Update([made, rows = RowsOf(part.value, exchange.dim, sent, received)]() mutable {
      made.copy_(rows);
    });
    return made;
  }
  HEDDLE_CHECK(exchange.form == graph::ExchangeForm::kFill && received.contains(sent),
               "a {} of what is not there", graph::FormName(exchange.form));
  device.Update([made, value = part.value, dim = exchange.dim, sent, received]() mutable {
    if (sent != received) {
      made.fill_(-0.0);  // It changes no sum; +0.0 would change a sum of -0.0.
    }
    if (value.defined()) {
      RowsOf(made, dim, received, sent).copy_(value);
    }
  });
  return made;
}

/// An exchange in flight.
struct Exchanges::Call {
  ExchangeLayout layout;
  comm::CollectiveOptions options;
  // Undefined where they would be empty.
  Copied value;
  at::Tensor made;
  at::Tensor scratch;
};

at::Tensor Exchanges::Begin(size_t key, const ExchangePart& part) {
  HEDDLE_CHECK(group_ != nullptr && !begun_.contains(key), "exchange {} cannot begin", key);
  const ExchangeLayout layout(*part.exchange, part.to.shape, part.to.dtype, part.position);
  auto call = std::make_shared<Call>(
      Call{.layout = layout,
           .options = {.group = part.group, .tag = part.tag, .deadline = {}, .urgent = true},
           .value = part.value.defined() ? device_.Download(part.value) : Copied{},
           .made = layout.received_bytes() > 0 ? make_buffer_(part.to) : at::Tensor(),
           .scratch = {}});
  if (const size_t bytes = layout.scratch_bytes(); bytes > 0) {
    const int64_t elements = static_cast<int64_t>(bytes) / SizeOf(part.to.dtype);
    call->scratch = make_buffer_({.dtype = part.to.dtype, .shape = {elements}});
  }
  at::Tensor made = call->made;
  begun_[key] =
      group_->Start([this, call = std::move(call)] { return Run(*call); }, /*urgent=*/true);
  return made;
}

Status Exchanges::Run(const Call& call) const {
  const Status downloaded = WaitUnless(abandoned_, call.value.mark);
  if (!downloaded.ok()) {
    group_->Abort(downloaded);
    return downloaded;
  }
  return call.layout.Run(*group_, call.options, MemoryOf(call.value.tensor), MemoryOf(call.made),
                         MemoryOf(call.scratch));
}

Result<Time> Exchanges::Await(size_t key) {
  const auto found = begun_.find(key);
  HEDDLE_CHECK(found != begun_.end(), "exchange {} has not begun", key);
  const comm::Work work = std::move(found->second);
  begun_.erase(found);
  HEDDLE_RETURN_IF_ERROR(work.Wait());
  return work.finished_at();
}

Status Exchanges::Finish() {
  Status first;
  for (const auto& [key, work] : begun_) {
    const Status status = work.Wait();
    if (first.ok()) {
      first = status;
    }
  }
  begun_.clear();
  return first;
}

void Exchanges::Abandon(const Status& reason) {
  if (group_ == nullptr) {
    return;
  }
  group_->Abort(reason);
  abandoned_.store(true);
  Finish().IgnoreError("the step has failed already");
  abandoned_.store(false);
}

}  // namespace heddle::runtime
