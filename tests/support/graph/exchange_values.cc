#include "tests/support/graph/exchange_values.h"

#include <algorithm>
#include <cmath>

namespace heddle::testing {

using graph::Exchange;
using graph::ExchangeForm;
using graph::Range;

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
  const bool own = exchange.form == ExchangeForm::kSlice || exchange.form == ExchangeForm::kFill;
  std::vector<bool> has(made.values.size(), false);
  const auto take = [&](size_t element, double value) {
    double& there = made.values[element];
    const bool known = has[element];
    has[element] = true;
    if (!known) {
      there = value;
    } else if (adds) {
      there += value;
    } else if (exchange.form == ExchangeForm::kMax) {
      there = std::max(there, value);
    } else if (!(std::abs(value - there) <= 1e-9 * (1 + std::abs(there)))) {
      why = "copies of what is exchanged differ";
    }
  };
  const Range wanted = exchange.received[receiver];
  for (size_t s = 0; s < sent.size(); ++s) {
    if (!sent[s] || (own && s != receiver)) {
      continue;
    }
    const Range range = exchange.sent[s];
    const int64_t stride = (range.end - range.begin) * inner;
    for (int64_t e = 0; e < ElementCount(shape); ++e) {
      const int64_t row = wanted.begin + e / inner % rows;
      if (row >= range.begin && row < range.end) {
        take(static_cast<size_t>(e),
             (*sent[s])[e / inner / rows * stride + (row - range.begin) * inner + e % inner]);
      }
    }
  }
  if (exchange.form != ExchangeForm::kFill && std::ranges::count(has, false) > 0) {
    why = "nobody has some of what is exchanged";
  }
  return made;
}

void ForEachIn(const Box& box,
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

DenseTensor TakeBox(const DenseTensor& whole, const Box& box) {
  DenseTensor part(box.extent);
  ForEachIn(box, whole.shape, [&](int64_t to, int64_t from) { part[to] = whole[from]; });
  return part;
}

bool PutBox(const DenseTensor& part, const Box& box, DenseTensor& whole, std::vector<bool>& has) {
  bool same = part.shape == box.extent;
  if (!same) {
    return false;
  }
  ForEachIn(box, whole.shape, [&](int64_t from, int64_t to) {
    const auto index = static_cast<size_t>(to);
    same = same && (!has[index] || whole[to] == part[from]);
    whole[to] = part[from];
    has[index] = true;
  });
  return same;
}

}  // namespace heddle::testing
