/// \file
/// Goal: by whatever collective members make an exchange, each gets what the exchange says, element
/// by element, for every form, dimension and type, with uneven, empty and shared ranges, and in
/// groups of any order.
#include "engine/runtime/exchange/exchange_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/random.h"
#include "tests/comm/cluster.h"
#include "tests/comm/elements.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime {
namespace {

using graph::Exchange;
using graph::ExchangeForm;
using graph::Range;

constexpr int kWorkers = 5;

/// An exchange of a tensor of small integers, which every type holds exactly.
struct Case {
  Exchange exchange;
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<int> group;
  uint64_t salt = 0;
};

int64_t LengthOf(const Range& range) {
  return range.end - range.begin;
}

/// Ranges one after the other that make up [0, extent), some of them empty; when they `cover`,
/// neighbours have rows in common.
std::vector<Range> RandomRanges(size_t members, int64_t extent, bool cover, Random& random) {
  std::vector<int64_t> edges = {0, extent};
  while (edges.size() <= members) {
    edges.push_back(random.Between(0, extent));
  }
  std::ranges::sort(edges);
  std::vector<Range> ranges;
  for (size_t i = 0; i < members; ++i) {
    Range range = edges[i] < edges[i + 1] ? Range{edges[i], edges[i + 1]} : Range{};
    if (cover && !range.empty()) {
      range = {std::max<int64_t>(range.begin - 1, 0), std::min(range.end + 1, extent)};
    }
    ranges.push_back(range);
  }
  return ranges;
}

/// What members have addends of: ranges, or all and nothing.
std::vector<Range> RandomAddends(size_t members, int64_t extent, Random& random) {
  if (random.Below(3) == 0) {
    return RandomRanges(members, extent, /*cover=*/true, random);
  }
  std::vector<Range> ranges(members, Range{0, extent});
  for (size_t i = 1; i < members && random.Below(2) == 0; ++i) {
    ranges[i] = {};
  }
  std::rotate(ranges.begin(), ranges.begin() + static_cast<ptrdiff_t>(random.Below(members)),
              ranges.end());
  return ranges;
}

Case RandomCase(uint64_t seed) {
  Random random(seed);
  Case made{.exchange = {}, .shape = {}, .group = {}, .salt = seed};
  for (int rank = 0; rank < kWorkers; ++rank) {
    made.group.insert(
        made.group.begin() + static_cast<ptrdiff_t>(random.Below(made.group.size() + 1)), rank);
  }
  made.group.resize(2 + random.Below(kWorkers - 1));
  const size_t members = made.group.size();
  const size_t dims = 1 + random.Below(3);
  for (size_t d = 0; d < dims; ++d) {
    made.shape.push_back(random.Between(1, 9));
  }
  Exchange& exchange = made.exchange;
  exchange.dim = static_cast<int>(random.Below(dims));
  int64_t& extent = made.shape[static_cast<size_t>(exchange.dim)];
  extent = random.Below(8) == 0 ? 3000 : extent;
  constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF64};
  made.dtype = kTypes[random.Below(3)];
  constexpr std::array kForms = {ExchangeForm::kSum, ExchangeForm::kMax, ExchangeForm::kScatter,
                                 ExchangeForm::kGather};
  exchange.form = kForms[random.Below(kForms.size())];
  const bool cover = random.Below(3) == 0;
  const std::vector<Range> cut = RandomRanges(members, extent, cover, random);
  const std::vector<Range> whole(members, Range{0, extent});
  exchange.sent =
      exchange.form == ExchangeForm::kGather ? cut : RandomAddends(members, extent, random);
  exchange.received = exchange.form == ExchangeForm::kScatter ? cut : whole;
  return made;
}

std::string NameOf(const Case& one) {
  std::string name =
      fmt::format("case {}: {} of {} along {} among", one.salt, graph::FormName(one.exchange.form),
                  ToString(one.shape), one.exchange.dim);
  for (size_t i = 0; i < one.group.size(); ++i) {
    name += fmt::format(" {} ({}:{} to {}:{})", one.group[i], one.exchange.sent[i].begin,
                        one.exchange.sent[i].end, one.exchange.received[i].begin,
                        one.exchange.received[i].end);
  }
  return name;
}

/// Calls visit(row, element of the whole tensor) for the elements of a part, in the part's order.
template <typename Visit>
void ForEach(const Case& one, const Range& range, Visit visit) {
  int64_t outer = 1;
  int64_t inner = 1;
  for (size_t d = 0; d < one.shape.size(); ++d) {
    const auto dim = static_cast<size_t>(one.exchange.dim);
    outer *= d < dim ? one.shape[d] : 1;
    inner *= d > dim ? one.shape[d] : 1;
  }
  const int64_t extent = one.shape[static_cast<size_t>(one.exchange.dim)];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      for (int64_t i = 0; i < inner; ++i) {
        visit(row, (o * extent + row) * inner + i);
      }
    }
  }
}

/// A gathered value is the same at all that have it.
int64_t ValueOf(const Case& one, size_t position, int64_t element) {
  const bool gather = one.exchange.form == ExchangeForm::kGather;
  return comm::ElementOf(one.salt, gather ? 0 : static_cast<int>(position) + 1, element);
}

void Append(Bytes& bytes, DType dtype, int64_t value) {
  bytes.resize(bytes.size() + static_cast<size_t>(SizeOf(dtype)));
  comm::PutElement(bytes.data() + bytes.size() - SizeOf(dtype), dtype, value);
}

Bytes InputOf(const Case& one, size_t position) {
  Bytes bytes;
  ForEach(one, one.exchange.sent[position], [&](int64_t /*row*/, int64_t element) {
    Append(bytes, one.dtype, ValueOf(one, position, element));
  });
  return bytes;
}

Bytes ExpectedOf(const Case& one, size_t position) {
  const ExchangeForm form = one.exchange.form;
  Bytes bytes;
  ForEach(one, one.exchange.received[position], [&](int64_t row, int64_t element) {
    int64_t result = form == ExchangeForm::kMax ? std::numeric_limits<int64_t>::min() : 0;
    for (size_t from = 0; from < one.group.size(); ++from) {
      const Range& has = one.exchange.sent[from];
      if (row >= has.begin && row < has.end) {
        const int64_t value = ValueOf(one, from, element);
        result = form == ExchangeForm::kGather ? value
                 : form == ExchangeForm::kMax  ? std::max(result, value)
                                               : result + value;
      }
    }
    Append(bytes, one.dtype, result);
  });
  return bytes;
}

void Make(const Case& one, comm::Communicator& communicator) {
  const auto place = std::ranges::find(one.group, communicator.rank());
  if (place == one.group.end()) {
    return;
  }
  const auto position = static_cast<size_t>(place - one.group.begin());
  SCOPED_TRACE(NameOf(one));
  Shape to = one.shape;
  to[static_cast<size_t>(one.exchange.dim)] = LengthOf(one.exchange.received[position]);
  const ExchangeLayout layout(one.exchange, to, one.dtype, static_cast<int>(position));
  const Bytes input = InputOf(one, position);
  const Bytes expected = ExpectedOf(one, position);
  ASSERT_EQ(layout.sent_bytes(), input.size());
  ASSERT_EQ(layout.received_bytes(), expected.size());
  for (const bool in_place : {false, true}) {
    // What lies in the buffers before must not matter.
    Bytes output(expected.size(), std::byte{0x7F});
    Bytes scratch(layout.scratch_bytes(), std::byte{0x7F});
    std::span<const std::byte> lies = input;
    if (const auto offset = layout.input_offset(); in_place && offset.has_value()) {
      const auto there =
          std::span(scratch.empty() ? output : scratch).subspan(*offset, input.size());
      std::ranges::copy(input, there.begin());
      lies = there;
    }
    const Status status = layout.Run(communicator,
                                     {.group = one.group,
                                      .tag = 2 * one.salt + (in_place ? 1 : 0),
                                      .deadline = {},
                                      .urgent = true},
                                     lies, output, scratch);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(output == expected) << (in_place ? "in place" : "beside");
    ASSERT_TRUE(input == InputOf(one, position)) << "inputs stay";
  }
}

TEST(ExchangeLayoutTest, EveryMemberGetsWhatTheExchangeSays) {
  const uint64_t seed = testing::TestSeed();
  const auto rounds = testing::Scaled<uint64_t>(60, 150, 2000);
  for (const comm::Media& media : {comm::Media::kShm, comm::Media::kTcp}) {
    comm::Cluster cluster(kWorkers, media);
    cluster.Run(1, [&](int /*rank*/, comm::Communicator& communicator) {
      for (uint64_t round = 0; round < rounds; ++round) {
        ASSERT_NO_FATAL_FAILURE(Make(RandomCase(seed + round), communicator));
      }
    });
  }
}

// By full mantissas, so that another order of additions shows; large enough that members would pass
// partial sums around.
TEST(ExchangeLayoutTest, MembersThatGetOneElementGetTheSameBits) {
  constexpr int64_t kRows = 4000;
  constexpr int64_t kRow = 64;
  const Exchange exchange{.form = ExchangeForm::kScatter,
                          .sent = std::vector<Range>(4, {0, kRows}),
                          .received = {{0, 1500}, {500, 2500}, {2000, 3000}, {1000, 4000}}};
  for (const comm::Media& media : {comm::Media::kShm, comm::Media::kTcp}) {
    comm::Cluster cluster(4, media);
    std::array<std::vector<float>, 4> outputs;
    cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
      const auto own = static_cast<size_t>(rank);
      const ExchangeLayout layout(exchange, {LengthOf(exchange.received[own]), kRow}, DType::kF32,
                                  rank);
      std::vector<float> input(layout.sent_bytes() / sizeof(float));
      for (size_t i = 0; i < input.size(); ++i) {
        const uint32_t word = Philox(5, static_cast<uint64_t>(rank), i)[0];
        input[i] = static_cast<float>(word) * 0x1.0p-31F - 1.0F;
      }
      outputs[own].resize(layout.received_bytes() / sizeof(float));
      Bytes scratch(layout.scratch_bytes());
      const Status status =
          layout.Run(communicator, {.group = {}, .tag = 1, .deadline = {}, .urgent = true},
                     std::as_bytes(std::span(input)),
                     std::as_writable_bytes(std::span(outputs[own])), scratch);
      ASSERT_TRUE(status.ok()) << status.ToString();
    });
    std::vector<float> known(kRows * kRow, std::numeric_limits<float>::infinity());
    for (size_t member = 0; member < outputs.size(); ++member) {
      const auto first = static_cast<size_t>(exchange.received[member].begin * kRow);
      int64_t unlike = 0;
      for (size_t i = 0; i < outputs[member].size(); ++i) {
        float& value = known[first + i];
        value = std::isinf(value) ? outputs[member][i] : value;
        unlike += value == outputs[member][i] ? 0 : 1;
      }
      EXPECT_EQ(unlike, 0) << comm::MediaName(media) << ", member " << member;
    }
  }
}

template <typename T>
T Neutral(DType dtype, comm::ReduceOp op) {
  std::array<T, 3> filled{};
  FillNeutral(std::as_writable_bytes(std::span(filled)), dtype, op);
  EXPECT_EQ(std::memcmp(&filled[0], &filled[2], sizeof(T)), 0);
  return filled[1];
}

TEST(FillNeutralTest, ChangesNoBitOfAResult) {
  constexpr auto kSum = comm::ReduceOp::kSum;
  constexpr auto kMax = comm::ReduceOp::kMax;
  const auto one = Neutral<float>(DType::kF32, kSum);
  const auto two = Neutral<double>(DType::kF64, kSum);
  EXPECT_TRUE(std::signbit(-0.0F + one) && !std::signbit(0.0F + one));
  EXPECT_TRUE(std::signbit(-0.0 + two) && !std::signbit(0.0 + two));
  EXPECT_EQ(Neutral<uint16_t>(DType::kBF16, kSum), 0x8000);
  EXPECT_EQ(Neutral<uint16_t>(DType::kF16, kSum), 0x8000);
  EXPECT_EQ(Neutral<int32_t>(DType::kI32, kSum), 0);
  EXPECT_EQ(Neutral<int64_t>(DType::kI64, kSum), 0);
  EXPECT_EQ(Neutral<float>(DType::kF32, kMax), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Neutral<double>(DType::kF64, kMax), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(Neutral<uint16_t>(DType::kBF16, kMax),
            std::bit_cast<uint32_t>(-std::numeric_limits<float>::infinity()) >> 16);
  EXPECT_EQ(Neutral<uint16_t>(DType::kF16, kMax), 0xFC00);
  EXPECT_EQ(Neutral<int32_t>(DType::kI32, kMax), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Neutral<int64_t>(DType::kI64, kMax), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Neutral<uint8_t>(DType::kU8, kMax), 0);
}

}  // namespace
}  // namespace heddle::runtime
