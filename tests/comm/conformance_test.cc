// Every operation × element type × size × number of workers × shape of the link table, over every
// medium, against a scalar reference. HEDDLE_CONFORMANCE=full takes every combination up to 64 MiB;
// otherwise sizes and shapes take turns in types and operations, by the seed. "small", for guests
// with one slow processor: fewer sizes and groups.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/communicator.h"
#include "tests/comm/cluster.h"
#include "tests/comm/elements.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::comm {
namespace {

enum class Extent { kSmall, kUsual, kFull };

std::string ExtentName() {
  const char* text = std::getenv("HEDDLE_CONFORMANCE");
  return text != nullptr && *text != '\0' ? text
                                          : testing::Scaled<std::string>("small", "small", "usual");
}

Extent ExtentHere() {
  const std::string name = ExtentName();
  return name == "full" ? Extent::kFull : name == "small" ? Extent::kSmall : Extent::kUsual;
}

/// What the members take their links to be, so that each algorithm gets its turn.
enum class Shape { kUnknown, kFast, kHalves, kOneApart, kAlternating };
constexpr std::array kShapes = {Shape::kUnknown, Shape::kFast, Shape::kHalves, Shape::kOneApart,
                                Shape::kAlternating};

int IslandOf(Shape shape, int rank, int size) {
  switch (shape) {
    case Shape::kHalves:
      return rank < size / 2 ? 0 : 1;
    case Shape::kOneApart:
      return rank == size / 2 ? 1 : 0;
    case Shape::kAlternating:
      return rank % 3;
    default:
      return 0;
  }
}

std::vector<Link> RowOf(Shape shape, int rank, int size) {
  std::vector<Link> row(static_cast<size_t>(size));
  for (int to = 0; to < size; ++to) {
    Link& link = row[static_cast<size_t>(to)];
    const bool near = IslandOf(shape, rank, size) == IslandOf(shape, to, size);
    link.latency_seconds = near ? 1e-7 : 1e-3;
    link.bytes_per_second = near ? 1e10 : 1e7;
  }
  return row;
}

// The elements recur with a period that no piece or segment has.
constexpr int64_t kPeriod = 4099;

// Elements first … first + count - 1 of what `value_of` gives for one period.
template <typename ValueOf>
Bytes Tiled(DType dtype, int64_t first, int64_t count, ValueOf value_of) {
  const auto element = static_cast<size_t>(SizeOf(dtype));
  const int64_t distinct = std::min(count, kPeriod);
  Bytes bytes(static_cast<size_t>(count) * element);
  for (int64_t i = 0; i < distinct; ++i) {
    PutElement(bytes.data() + static_cast<size_t>(i) * element, dtype, value_of(first + i));
  }
  const size_t period = static_cast<size_t>(distinct) * element;
  for (size_t done = period; done < bytes.size(); done += std::min(period, bytes.size() - done)) {
    std::memcpy(bytes.data() + done, bytes.data(), std::min(period, bytes.size() - done));
  }
  return bytes;
}

// Unsigned bytes get what is not negative, so that their order is that of the integers.
int64_t Given(uint64_t salt, int rank, int64_t i, DType dtype) {
  return ElementOf(salt, rank, i % kPeriod + 1) + (dtype == DType::kU8 ? 5 : 0);
}

Bytes Input(uint64_t salt, int rank, int64_t first, int64_t count, DType dtype) {
  return Tiled(dtype, first, count, [&](int64_t i) { return Given(salt, rank, i, dtype); });
}

Bytes Reduced(uint64_t salt, int members, int64_t first, int64_t count, DType dtype, ReduceOp op) {
  return Tiled(dtype, first, count, [&](int64_t i) {
    int64_t result = Given(salt, 0, i, dtype);
    for (int rank = 1; rank < members; ++rank) {
      const int64_t value = Given(salt, rank, i, dtype);
      result = op == ReduceOp::kSum   ? result + value
               : op == ReduceOp::kMax ? std::max(result, value)
                                      : std::min(result, value);
    }
    return result;
  });
}

/// One combination; every worker makes the same ones in the same order.
struct Combination {
  Shape shape = Shape::kUnknown;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int64_t elements = 0;  ///< In sum over all shares.
};

std::vector<int64_t> LargeBytes(Extent extent) {
  switch (extent) {
    case Extent::kSmall:
      return {65544, (1 << 20) + 8};
    case Extent::kUsual:
      return {65536, 65544, (1 << 20) + 8, 4 << 20, 16 << 20};
    case Extent::kFull:
      return {4, 1000, 65536, 65540, 1 << 20, 4 << 20, (16 << 20) + 8, 64 << 20};
  }
  return {};
}

/// Of every shape, element type and operation at least one, in a small extent, too.
std::vector<Combination> Combinations(uint64_t seed) {
  std::vector<Combination> all;
  Random random(seed);
  const Extent extent = ExtentHere();
  const bool full = extent == Extent::kFull;
  const std::vector<int64_t> small = {0, 1, 7, 1001};
  const std::vector<int64_t> large_bytes = LargeBytes(extent);
  for (const Shape shape : kShapes) {
    for (const DType dtype : kElementTypes) {
      for (const ReduceOp op : kReduceOps) {
        if (extent == Extent::kSmall) {
          all.push_back({shape, dtype, op, small[random.Below(small.size())]});
        } else {
          for (const int64_t elements : small) {
            if (full || shape == Shape::kUnknown || random.Below(2) == 0) {
              all.push_back({shape, dtype, op, elements});
            }
          }
        }
        for (const int64_t bytes : large_bytes) {
          const uint64_t turns = bytes > (8 << 20) ? 105 : bytes > (1 << 20) ? 35 : 7;
          if (full || random.Below(turns) == 0) {
            all.push_back({shape, dtype, op, bytes / SizeOf(dtype)});
          }
        }
      }
    }
  }
  return all;
}

// Shares of random sizes, a third of them empty.
std::vector<int64_t> Uneven(uint64_t salt, int members, int64_t total) {
  Random random(salt);
  std::vector<int64_t> weights;
  int64_t sum = 0;
  for (int i = 0; i < members; ++i) {
    weights.push_back(random.Below(3) == 0 ? 0 : random.Between(1, 8));
    sum += weights.back();
  }
  std::vector<int64_t> counts;
  int64_t given = 0;
  for (const int64_t weight : weights) {
    counts.push_back(sum == 0 ? 0 : total / sum * weight);
    given += counts.back();
  }
  counts[random.Below(counts.size())] += total - given;
  return counts;
}

class Conformance {
 public:
  Conformance(Communicator& communicator, const Combination& combination, uint64_t salt)
      : communicator_(communicator),
        is_(combination),
        salt_(salt),
        rank_(communicator.rank()),
        size_(communicator.size()),
        element_(static_cast<size_t>(SizeOf(combination.dtype))) {}

  void Run() {
    ASSERT_NO_FATAL_FAILURE(AllReduce());
    ASSERT_NO_FATAL_FAILURE(ScatterAndGather());
    if (is_.op == ReduceOp::kSum) {
      ASSERT_NO_FATAL_FAILURE(Broadcast());
      ASSERT_NO_FATAL_FAILURE(AllToAll());
      ASSERT_NO_FATAL_FAILURE(PointToPoint());
    }
  }

 private:
  CollectiveOptions Options() { return {.group = {}, .tag = ++tag_, .deadline = {}}; }

  void AllReduce() {
    Bytes buffer = Input(salt_, rank_, 0, is_.elements, is_.dtype);
    const Status status = communicator_.AllReduce(buffer, is_.dtype, is_.op, Options());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(buffer == Reduced(salt_, size_, 0, is_.elements, is_.dtype, is_.op));
  }

  void ScatterAndGather() {
    const auto counts = Uneven(salt_, size_, is_.elements);
    int64_t first = 0;
    for (int i = 0; i < rank_; ++i) {
      first += counts[static_cast<size_t>(i)];
    }
    const int64_t own = counts[static_cast<size_t>(rank_)];
    const Bytes input = Input(salt_, rank_, 0, is_.elements, is_.dtype);
    Bytes share(static_cast<size_t>(own) * element_);
    Status status = communicator_.ReduceScatter(input, share, counts, is_.dtype, is_.op, Options());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(share == Reduced(salt_, size_, first, own, is_.dtype, is_.op));
    ASSERT_TRUE(input == Input(salt_, rank_, 0, is_.elements, is_.dtype)) << "inputs stay";
    Bytes whole(input.size());
    status = communicator_.AllGather(share, whole, counts, is_.dtype, Options());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(whole == Reduced(salt_, size_, 0, is_.elements, is_.dtype, is_.op));
  }

  void Broadcast() {
    const int root = static_cast<int>(salt_ % static_cast<uint64_t>(size_));
    Bytes buffer = Input(salt_, rank_, 0, is_.elements, is_.dtype);
    const Status status = communicator_.Broadcast(buffer, root, Options());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(buffer == Input(salt_, root, 0, is_.elements, is_.dtype));
  }

  // What rank a sends to rank b: elements of a's input, from 1000 b on.
  std::vector<int64_t> Row(int from) const {
    return Uneven(salt_ + static_cast<uint64_t>(from), size_, is_.elements / size_);
  }
  void AllToAll() {
    const std::vector<int64_t> sent = Row(rank_);
    std::vector<int64_t> received;
    Bytes input;
    Bytes expected;
    for (int other = 0; other < size_; ++other) {
      const Bytes out =
          Input(salt_, rank_, 1000 * other, sent[static_cast<size_t>(other)], is_.dtype);
      input.insert(input.end(), out.begin(), out.end());
      received.push_back(Row(other)[static_cast<size_t>(rank_)]);
      const Bytes in = Input(salt_, other, 1000 * rank_, received.back(), is_.dtype);
      expected.insert(expected.end(), in.begin(), in.end());
    }
    Bytes output(expected.size());
    const Status status =
        communicator_.AllToAll(input, sent, output, received, is_.dtype, Options());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(output == expected);
  }

  // Both directions at once, with the next and the previous worker.
  void PointToPoint() {
    const int next = (rank_ + 1) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    if (size_ == 1) {
      return;
    }
    const Bytes data = Input(salt_, rank_, 0, is_.elements, is_.dtype);
    Bytes from_previous(data.size());
    Bytes from_next(data.size());
    const Work works[] = {communicator_.Recv(previous, 1, from_previous, false),
                          communicator_.Recv(next, 2, from_next, true),
                          communicator_.Send(next, 1, data, false),
                          communicator_.Send(previous, 2, data, true)};
    for (const Work& work : works) {
      const Status status = work.Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    ASSERT_TRUE(from_previous == Input(salt_, previous, 0, is_.elements, is_.dtype));
    ASSERT_TRUE(from_next == Input(salt_, next, 0, is_.elements, is_.dtype));
  }

  Communicator& communicator_;
  const Combination is_;
  const uint64_t salt_;
  const int rank_;
  const int size_;
  const size_t element_;
  uint64_t tag_ = 100;
};

struct Case {
  Media media;
  int size;
};

class ConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    fmt::print("extent {}: HEDDLE_CONFORMANCE=small|full\n", ExtentName());
  }
};

TEST_P(ConformanceTest, EveryOperationEqualsTheScalarReference) {
  const uint64_t seed = testing::TestSeed();
  Cluster cluster(GetParam().size, GetParam().media);
  const std::vector<Combination> combinations =
      Combinations(seed + static_cast<uint64_t>(GetParam().size));
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    Shape shape = Shape::kUnknown;
    uint64_t salt = seed;
    for (const Combination& combination : combinations) {
      if (combination.shape != shape) {
        shape = combination.shape;
        const Status status = communicator.ShareLinks(RowOf(shape, rank, communicator.size()), {});
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
      SCOPED_TRACE(::testing::Message()
                   << "shape " << static_cast<int>(shape) << ", " << DTypeName(combination.dtype)
                   << ", operation " << static_cast<int>(combination.op) << ", "
                   << combination.elements << " elements, rank " << rank);
      ASSERT_NO_FATAL_FAILURE(Conformance(communicator, combination, ++salt).Run());
    }
  });
}

TEST_P(ConformanceTest, RecordsAndBarriers) {
  const uint64_t seed = testing::TestSeed();
  Cluster cluster(GetParam().size, GetParam().media);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    for (const int64_t most : {int64_t{0}, int64_t{100}, int64_t{5000}, int64_t{2} << 20}) {
      const auto sizes = Uneven(seed + static_cast<uint64_t>(most), communicator.size(), most);
      const auto record = [&](int of) {
        return Input(seed, of, 0, sizes[static_cast<size_t>(of)], DType::kU8);
      };
      const auto records = communicator.AllGatherBytes(record(rank), {});
      ASSERT_TRUE(records.ok()) << records.status().ToString();
      for (int i = 0; i < communicator.size(); ++i) {
        ASSERT_TRUE((*records)[static_cast<size_t>(i)] == record(i));
      }
      const Status status = communicator.Barrier({});
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  });
}

// Contribution `number`: magnitudes that differ by orders, so that another order of additions
// shows.
std::vector<float> Contribution(uint64_t seed, int64_t number, size_t elements) {
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    const auto words = Philox(seed, static_cast<uint64_t>(number), i);
    values[i] = static_cast<float>((static_cast<double>(words[0]) * 0x1.0p-31 - 1.0) *
                                   static_cast<double>(1U << (words[1] % 20)));
  }
  return values;
}

// By the definition: left half plus right half of the numbers first … last - 1, cut at the largest
// power of two below their number (base/tensor/reduction_tree.h for a tree that starts at 0).
std::vector<float> TreeSum(uint64_t seed, int64_t first, int64_t last, size_t elements) {
  if (last - first == 1) {
    return Contribution(seed, first, elements);
  }
  const auto half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(last - first)) / 2);
  std::vector<float> sum = TreeSum(seed, first, first + half, elements);
  const std::vector<float> right = TreeSum(seed, first + half, last, elements);
  for (size_t i = 0; i < elements; ++i) {
    sum[i] += right[i];
  }
  return sum;
}

TEST_P(ConformanceTest, TheReproducibleReductionHasTheSameBitsEverywhere) {
  constexpr uint64_t kSeed = 11;  // The same values for every medium and group size.
  constexpr int64_t kContributions = 13;
  Cluster cluster(GetParam().size, GetParam().media);
  for (const size_t elements : {size_t{1}, size_t{1001}, size_t{200003}}) {
    const std::vector<float> expected = TreeSum(kSeed, 0, kContributions, elements);
    TreeContributions contributions;
    contributions.nodes.resize(static_cast<size_t>(cluster.size()));
    for (int64_t number = 0; number < kContributions; ++number) {
      const auto holder = static_cast<size_t>(number * cluster.size() / kContributions);
      contributions.nodes[holder].push_back({.level = 0, .index = number});
    }
    cluster.Run(static_cast<int64_t>(elements), [&](int rank, Communicator& communicator) {
      const Status shared =
          communicator.ShareLinks(RowOf(Shape::kHalves, rank, communicator.size()), {});
      ASSERT_TRUE(shared.ok()) << shared.ToString();
      std::vector<std::vector<float>> values;
      for (const TreeNode& node : contributions.nodes[static_cast<size_t>(rank)]) {
        values.push_back(Contribution(kSeed, node.index, elements));
      }
      std::vector<std::span<const std::byte>> mine;
      for (const auto& value : values) {
        mine.push_back(std::as_bytes(std::span(value)));
      }
      std::vector<float> output(elements);
      const Status status =
          communicator.ReduceTree(contributions, mine, RawOf(output), DType::kF32, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(std::memcmp(output.data(), expected.data(), elements * sizeof(float)), 0);
    });
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Media& media : MediaHere({.mixed = true})) {
    for (int size = 1; size <= 8; ++size) {
      // The smallest pair, a ring that is more than a pair, and islands in which all media meet.
      if (ExtentHere() != Extent::kSmall || size == 2 || size == 3 || size == 5) {
        cases.push_back({media, size});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Media, ConformanceTest, ::testing::ValuesIn(AllCases()), [](const auto& parameter) {
      return MediaName(parameter.param.media) + std::to_string(parameter.param.size);
    });

}  // namespace
}  // namespace heddle::comm
