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

std::span<std::byte> BytesIfDefined(const at::Tensor& tensor) {
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

// From a device of another memory to where the collective uses it: in its result, or at least where
// other members reach it.
Copied Exchanges::Fetch(const ExchangePart& part,
                        const ExchangeLayout& layout,
                        const at::Tensor& buffer) {
  if (device_.is_host()) {
    return device_.Download(part.value);
  }
  at::Tensor target;
  if (const auto offset = layout.input_offset(); offset.has_value() && buffer.defined()) {
    const int64_t begin = static_cast<int64_t>(*offset) / SizeOf(part.to.dtype);
    target = buffer.view({-1}).narrow(0, begin, part.value.numel()).view(part.value.sizes());
  } else {
    target = make_buffer_({.dtype = part.to.dtype,
                           .shape = Shape(part.value.sizes().begin(), part.value.sizes().end())});
  }
  const Mark mark = device_.DownloadInto(part.value, target);
  return {.tensor = std::move(target), .mark = mark};
}

at::Tensor Exchanges::Begin(size_t key, const ExchangePart& part) {
  const ExchangeLayout layout(*part.exchange, part.to.shape, part.to.dtype, part.position);
  // Undefined where they would be empty.
  at::Tensor made = layout.received_bytes() > 0 ? make_buffer_(part.to) : at::Tensor();
  at::Tensor scratch;
  if (const size_t bytes = layout.scratch_bytes(); bytes > 0) {
    const int64_t elements = static_cast<int64_t>(bytes) / SizeOf(part.to.dtype);
    scratch = make_buffer_({.dtype = part.to.dtype, .shape = {elements}});
  }
  const Copied value =
      part.value.defined() ? Fetch(part, layout, scratch.defined() ? scratch : made) : Copied{};
  const comm::CollectiveOptions options{
      .group = part.group, .tag = part.tag, .deadline = {}, .urgent = true};
  calls_.Begin(key, value.mark,
               [group = group_, layout, options, value = value.tensor, made, scratch] {
                 return layout.Run(*group, options, BytesIfDefined(value), BytesIfDefined(made),
                                   BytesIfDefined(scratch));
               });
  return made;
}

}  // namespace heddle::runtime
