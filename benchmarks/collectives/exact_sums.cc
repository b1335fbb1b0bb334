#include "benchmarks/collectives/exact_sums.h"

#include <cstring>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/tensor/reduction_tree.h"

namespace heddle::comm {

namespace {

/// The same workers without a segment: who does not know its own host shares nothing.
struct MessagesGroup {
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Communicator> group;
};

Result<MessagesGroup> Form(const EndpointOptions& options,
                           Communicator& group,
                           const CollectiveOptions& call) {
  MessagesGroup made;
  HEDDLE_ASSIGN_OR_RETURN(made.endpoint, Endpoint::Create(options));
  const std::string address = made.endpoint->address();
  HEDDLE_ASSIGN_OR_RETURN(const auto addresses,
                          group.AllGatherBytes(std::as_bytes(std::span(address)), call));
  GroupOptions members;
  members.generation = 1;
  members.rank = group.rank();
  for (int rank = 0; rank < group.size(); ++rank) {
    const Bytes& other = addresses[static_cast<size_t>(rank)];
    const bool own = rank == group.rank();
    members.members.push_back(
        {.name = "worker-" + std::to_string(rank),
         .address =
             own ? "" : std::string(reinterpret_cast<const char*>(other.data()), other.size())});
    if (!own) {
      members.peers.push_back(rank);
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(made.group,
                          made.endpoint->Connect(members, After(std::chrono::seconds(20))));
  return made;
}

// Orders of magnitude apart, so that another order of additions shows in the bits.
float ValueOf(int64_t number, int64_t i) {
  const auto words = Philox(7, static_cast<uint64_t>(number), static_cast<uint64_t>(i));
  return (static_cast<float>(words[0]) * 0x1.0p-31F - 1.0F) *
         static_cast<float>(1U << (words[1] % 20));
}

// The tree's definition: a node over numbers [first, last), cut at its greatest power of two.
float SumOf(int64_t first, int64_t last, int64_t i) {
  if (last - first == 1) {
    return ValueOf(first, i);
  }
  int64_t half = 1;
  while (2 * half < last - first) {
    half *= 2;
  }
  return SumOf(first, first + half, i) + SumOf(first + half, last, i);
}

}  // namespace

Result<ExactSumTimes> MeasureExactSums(const EndpointOptions& options,
                                       Communicator& group,
                                       int64_t bytes,
                                       int values,
                                       int repetitions,
                                       uint64_t tag) {
  const auto next = [&] { return CollectiveOptions{.group = {}, .tag = tag++, .deadline = {}}; };
  HEDDLE_ASSIGN_OR_RETURN(const MessagesGroup messages, Form(options, group, next()));
  const auto elements = static_cast<size_t>(bytes) / sizeof(float);
  TreeContributions contributions;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    auto& nodes = contributions.nodes.emplace_back();
    for (int64_t i = 0; i < values; ++i) {
      nodes.push_back({.level = 0, .index = rank * values + i});
    }
  }
  std::vector<std::vector<float>> mine(static_cast<size_t>(values), std::vector<float>(elements));
  std::vector<std::span<const std::byte>> spans;
  for (size_t value = 0; value < mine.size(); ++value) {
    for (size_t i = 0; i < elements; ++i) {
      mine[value][i] =
          ValueOf(group.rank() * values + static_cast<int64_t>(value), static_cast<int64_t>(i));
    }
    spans.push_back(std::as_bytes(std::span(mine[value])));
  }
  std::vector<float> expected(elements);
  for (size_t i = 0; i < elements; ++i) {
    expected[i] = SumOf(0, int64_t{group.size()} * values, static_cast<int64_t>(i));
  }
  std::vector<float> output(elements);
  ExactSumTimes times;
  for (int i = 0; i <= repetitions; ++i) {
    for (Communicator* const route : {&group, messages.group.get()}) {
      HEDDLE_RETURN_IF_ERROR(group.Barrier(next()));
      const Time begun = Now();
      HEDDLE_RETURN_IF_ERROR(route->ReduceTree(
          contributions, spans, std::as_writable_bytes(std::span(output)), DType::kF32, next()));
      const double took = Seconds(Now() - begun);
      if (i > 0) {
        (route == &group ? times.shared : times.messages).push_back(took);
      } else if (std::memcmp(output.data(), expected.data(), elements * sizeof(float)) != 0) {
        return DataLossError("a wrong sum {}",
                             route == &group ? "in shared memory" : "by messages");
      } else {
        std::memset(output.data(), 0, elements * sizeof(float));
      }
    }
  }
  HEDDLE_RETURN_IF_ERROR(messages.group->Barrier(next()));
  return times;
}

}  // namespace heddle::comm
