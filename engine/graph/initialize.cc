#include "engine/graph/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/random.h"

namespace heddle::graph {
namespace {

/// Element e is number e % 4 of the four normal values that Philox block e / 4 gives: words (0, 1)
/// and (2, 3) are each a pair of uniform values, turned into two normal values by Box & Muller
/// (1958).
class NormalStream {
 public:
  NormalStream(uint64_t key, double deviation) : key_(key), deviation_(deviation) {}

  float At(uint64_t element) {
    const uint64_t block = element / 4;
    if (block != block_) {
      Fill(block);
    }
    return values_[element % 4];
  }

 private:
  void Fill(uint64_t block) {
    const auto words = Philox(key_, 0, block);
    for (size_t pair = 0; pair < 2; ++pair) {
      // (0, 1], so that the logarithm is finite.
      const double u = (static_cast<double>(words[2 * pair]) + 1.0) * 0x1.0p-32;
      const double angle =
          2.0 * std::numbers::pi * static_cast<double>(words[2 * pair + 1]) * 0x1.0p-32;
      const double radius = deviation_ * std::sqrt(-2.0 * std::log(u));
      values_[2 * pair] = static_cast<float>(radius * std::cos(angle));
      values_[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
    block_ = block;
  }

  uint64_t key_;
  double deviation_;
  uint64_t block_ = ~uint64_t{0};
  std::array<float, 4> values_{};
};

/// Calls `visit(logical element, position in the box)` for each element of the box in row-major
/// order.
template <typename Visit>
void ForEachElement(const Shape& shape, const Box& box, Visit visit) {
  const size_t rank = shape.size();
  const int64_t count = ElementCount(box.extent);
  Shape index(rank, 0);
  for (int64_t position = 0; position < count; ++position) {
    int64_t element = 0;
    for (size_t d = 0; d < rank; ++d) {
      element = element * shape[d] + box.offset[d] + index[d];
    }
    visit(static_cast<uint64_t>(element), static_cast<size_t>(position));
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < box.extent[d]) {
        break;
      }
      index[d] = 0;
    }
  }
}

}  // namespace

void InitializeParameter(const Parameter& parameter,
                         uint64_t seed,
                         const Box& box,
                         std::span<float> out) {
  HEDDLE_CHECK(box.offset.size() == parameter.shape.size() &&
                   Contains(WholeBox(parameter.shape), box) &&
                   static_cast<int64_t>(out.size()) == ElementCount(box.extent),
               "{} of {} {} into {} elements", ToString(box), parameter.name,
               ToString(parameter.shape), out.size());
  switch (parameter.initializer.kind) {
    case Initializer::Kind::kOnes:
      std::ranges::fill(out, 1.0F);
      return;
    case Initializer::Kind::kZeros:
      std::ranges::fill(out, 0.0F);
      return;
    case Initializer::Kind::kNormal: {
      NormalStream stream(StreamKey(seed, parameter.name),
                          parameter.initializer.standard_deviation);
      ForEachElement(parameter.shape, box, [&](uint64_t element, size_t position) {
        out[position] = stream.At(element);
      });
      return;
    }
  }
}

}  // namespace heddle::graph
