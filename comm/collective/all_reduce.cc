// All-reduce by the algorithm that the group's topology chooses (comm/cost/topology.h), and the
// choice between direct and ring for shares.
//
// Recursive doubling: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, with their
// handling of other group sizes than powers of two. Hierarchical: a reduce-scatter inside each
// island to as many carriers as there are crossings, an all-reduce of each crossing's slice across
// islands, an all-gather inside.
#include <bit>
#include <utility>

#include "comm/collective/collective.h"
#include "comm/collective/reduce.h"

namespace heddle::comm {

namespace {

Status TwoPhaseAllReduce(Collective& call,
                         const FlatLinks& links,
                         std::span<std::byte> buffer,
                         DType dtype,
                         ReduceOp op) {
  const int64_t element = SizeOf(dtype);
  const Segments segments =
      Segments::Even(static_cast<int64_t>(buffer.size()) / element, call.size());
  const int own = call.position();
  const auto mine = Slice(buffer, segments.begin(own) * element, segments.count(own) * element);
  HEDDLE_RETURN_IF_ERROR(ReduceScatterAmong(call, links, buffer, mine, segments, dtype, op));
  return AllGatherAmong(call, links, buffer, segments, element);
}

Status FlatAllReduce(Collective& call,
                     const FlatLinks& links,
                     std::span<std::byte> buffer,
                     DType dtype,
                     ReduceOp op) {
  if (call.size() == 1 || buffer.empty()) {
    return Status::Ok();
  }
  switch (links.AllReduce(static_cast<int64_t>(buffer.size()), Widening(dtype, op)).algorithm) {
    case AllReduceAlgorithm::kDirect:
      return DirectAllReduce(call, buffer, dtype, op);
    case AllReduceAlgorithm::kRecursiveDoubling:
      return DoublingAllReduce(call, buffer, dtype, op);
    case AllReduceAlgorithm::kTwoPhase:
    case AllReduceAlgorithm::kHierarchical:
      break;
  }
  return TwoPhaseAllReduce(call, links, buffer, dtype, op);
}

// Cuts the buffer into one slice a crossing.
Status HierarchicalAllReduce(Collective& call,
                             const Hierarchy& hierarchy,
                             int crossings,
                             std::span<std::byte> buffer,
                             DType dtype,
                             ReduceOp op) {
  size_t island = 0;
  int place = -1;
  for (size_t i = 0; i < hierarchy.islands.size(); ++i) {
    const auto& members = hierarchy.islands[i];
    const auto own = std::find(members.begin(), members.end(), call.position());
    if (own != members.end()) {
      island = i;
      place = static_cast<int>(own - members.begin());
    }
  }
  const auto& members = hierarchy.islands[island];
  const int64_t element = SizeOf(dtype);
  const Segments slices = Segments::Even(static_cast<int64_t>(buffer.size()) / element, crossings);
  Segments shares = slices;  // Members that carry no slice own nothing.
  shares.first.resize(members.size() + 1, slices.total());
  const auto mine = Slice(buffer, shares.begin(place) * element, shares.count(place) * element);

  const FlatLinks& inside = hierarchy.inside[island];
  const auto island_call = call.Among(members);
  if (members.size() > 1) {
    HEDDLE_RETURN_IF_ERROR(
        ReduceScatterAmong(*island_call, inside, buffer, mine, shares, dtype, op));
  }
  if (place < crossings) {
    std::vector<int> crossing;
    for (const auto& other : hierarchy.islands) {
      crossing.push_back(other[static_cast<size_t>(place)]);
    }
    const auto crossing_call = call.Among(crossing);
    HEDDLE_RETURN_IF_ERROR(FlatAllReduce(
        *crossing_call, hierarchy.across[static_cast<size_t>(place)], mine, dtype, op));
  }
  return members.size() > 1 ? AllGatherAmong(*island_call, inside, buffer, shares, element)
                            : Status::Ok();
}

}  // namespace

Status AllReduceAmong(Collective& call,
                      const Topology& topology,
                      std::span<std::byte> buffer,
                      DType dtype,
                      ReduceOp op) {
  const AllReduceChoice choice =
      topology.AllReduce(static_cast<int64_t>(buffer.size()), Widening(dtype, op));
  if (choice.algorithm == AllReduceAlgorithm::kHierarchical) {
    return HierarchicalAllReduce(call,
                                 topology.hierarchies()[static_cast<size_t>(choice.hierarchy)],
                                 choice.crossings, buffer, dtype, op);
  }
  return FlatAllReduce(call, topology.flat(), buffer, dtype, op);
}

Status ReduceScatterAmong(Collective& call,
                          const FlatLinks& links,
                          std::span<const std::byte> input,
                          std::span<std::byte> output,
                          const Segments& segments,
                          DType dtype,
                          ReduceOp op) {
  const ShareChoice choice =
      links.ReduceScatter(SizesOf(segments, SizeOf(dtype)), Widening(dtype, op));
  return choice.algorithm == ShareAlgorithm::kDirect
             ? DirectReduceScatter(call, input, output, segments, dtype, op)
             : RingReduceScatter(call, input, output, segments, dtype, op);
}

Status AllGatherAmong(Collective& call,
                      const FlatLinks& links,
                      std::span<std::byte> output,
                      const Segments& segments,
                      int64_t element) {
  return links.AllGather(SizesOf(segments, element)).algorithm == ShareAlgorithm::kDirect
             ? DirectAllGather(call, output, segments, element)
             : RingAllGather(call, output, segments, element);
}

// Of n members, the first 2 (n - 2^k) go in pairs: the odd one leaves its values with the even one
// and gets the result. The lower positions' partial result is always the left operand, so that both
// of a pair compute the same bits.
Status DoublingAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op) {
  const DType partial_type = PartialType(dtype, op);
  const int64_t bytes = static_cast<int64_t>(buffer.size()) / SizeOf(dtype) * SizeOf(partial_type);
  std::span<std::byte> partial = call.Scratch(bytes);
  std::span<std::byte> arrived = call.Scratch(bytes);
  Convert(buffer, dtype, partial, partial_type);
  const auto exchange = [&](int other, int round) -> Status {
    call.Recv(other, Phase::kDoubling, round, 0, arrived);
    call.Send(other, Phase::kDoubling, round, 0, partial);
    return call.WaitAll();
  };
  const int whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(call.size())));
  const int extra = call.size() - whole;
  const int own = call.position();
  if (own < 2 * extra && own % 2 == 1) {
    call.Send(own - 1, Phase::kDoubling, 0, 0, partial);
    call.Recv(own - 1, Phase::kDoublingResult, 0, 0, buffer);
    return call.WaitAll();
  }
  if (own < 2 * extra) {
    HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(own + 1, Phase::kDoubling, 0, 0, arrived)));
    FoldInto(partial, arrived, partial_type, op);
  }
  const int stand_in = own < 2 * extra ? own / 2 : own - extra;
  int round = 1;
  for (int bit = 1; bit < whole; bit <<= 1, ++round) {
    const int other = stand_in ^ bit;
    HEDDLE_RETURN_IF_ERROR(exchange(other < extra ? 2 * other : other + extra, round));
    if ((stand_in & bit) != 0) {
      std::swap(partial, arrived);
    }
    FoldInto(partial, arrived, partial_type, op);
  }
  Convert(partial, partial_type, buffer, dtype);
  if (own < 2 * extra) {
    call.Send(own + 1, Phase::kDoublingResult, 0, 0, buffer);
  }
  return call.WaitAll();
}

}  // namespace heddle::comm
