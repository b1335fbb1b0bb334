#include "tests/support/program/exchange_values.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace heddle::testing {
namespace {

using graph::Exchange;
using graph::ExchangeForm;
using graph::Range;

/// Calls visit(element of the part, element of the whole) for the part of `shape` that is `box`.
void ForEach(const Box& box,
             const Shape& shape,
             const std::function<void(int64_t, int64_t)>& visit) {
  for (int64_t e = 0; e < ElementCount(box.extent); ++e) {
    int64_t rest = e;
    int64_t stride = 1;
    int64_t whole = 0;
    for (size_t d = shape.size(); d > 0; --d) {
      whole += (box.offset[d - 1] + rest % box.extent[d - 1]) * stride;
      rest /= box.extent[d - 1];
      stride *= shape[d - 1];
    }
    visit(e, whole);
  }
}

/// The values that members have of one row of `dim`, at (outer, inner) of the other dimensions.
std::vector<double> ValuesOf(const Exchange& exchange,
                             const std::vector<std::optional<DenseTensor>>& sent,
                             size_t receiver,
                             int64_t row,
                             int64_t outer,
                             int64_t inner_extent,
                             int64_t inner) {
  const bool own = exchange.form == ExchangeForm::kSlice || exchange.form == ExchangeForm::kFill;
  std::vector<double> values;
  for (size_t s = 0; s < sent.size(); ++s) {
    const Range range = exchange.sent[s];
    if (row < range.begin || row >= range.end || (own && s != receiver) || !sent[s]) {
      continue;
    }
    const int64_t rows = range.end - range.begin;
    values.push_back((*sent[s])[(outer * rows + row - range.begin) * inner_extent + inner]);
  }
  return values;
}

}  // namespace

DenseTensor MakeExchange(const Exchange& exchange,
                         const std::vector<std::optional<DenseTensor>>& sent,
                         size_t receiver,
                         const Shape& shape,
                         std::string& why) {
  const bool adds = exchange.form == ExchangeForm::kSum || exchange.form == ExchangeForm::kScatter;
  DenseTensor made(shape);
  const auto dim = static_cast<size_t>(exchange.dim);
  const int64_t rows = shape.empty() ? 1 : shape[dim];
  int64_t inner = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) {
    inner *= shape[d];
  }
  for (int64_t e = 0; e < ElementCount(shape); ++e) {
    const int64_t row = exchange.received[receiver].begin + e / inner % rows;
    const std::vector<double> values =
        ValuesOf(exchange, sent, receiver, row, e / inner / rows, inner, e % inner);
    if (values.empty()) {
      if (exchange.form != ExchangeForm::kFill) {
        why = fmt::format("nobody has row {} of what is exchanged", row);
      }
      continue;
    }
    made[e] = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      if (adds) {
        made[e] += values[i];
      } else if (exchange.form == ExchangeForm::kMax) {
        made[e] = std::max(made[e], values[i]);
      } else if (!(std::abs(values[i] - made[e]) <= 1e-9 * (1 + std::abs(made[e])))) {
        why = fmt::format("copies of row {} of what is exchanged differ", row);
      }
    }
  }
  return made;
}

DenseTensor TakeBox(const DenseTensor& whole, const Box& box) {
  DenseTensor part(box.extent);
  ForEach(box, whole.shape, [&](int64_t to, int64_t from) { part[to] = whole[from]; });
  return part;
}

bool PutBox(const DenseTensor& part, const Box& box, DenseTensor& whole, std::vector<bool>& has) {
  bool same = part.shape == box.extent;
  if (!same) {
    return false;
  }
  ForEach(box, whole.shape, [&](int64_t from, int64_t to) {
    const auto index = static_cast<size_t>(to);
    same = same && (!has[index] || whole[to] == part[from]);
    whole[to] = part[from];
    has[index] = true;
  });
  return same;
}

}  // namespace heddle::testing
