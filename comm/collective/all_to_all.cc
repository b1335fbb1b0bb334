// All-to-all in pairwise rounds: in round s everyone sends to the member s places on and receives
// from the one s places back, so that each member is one other's target at a time. A few rounds are
// under way at once, which hides their latency and evens out unequal blocks.
#include <algorithm>

#include "comm/collective/collective.h"

namespace heddle::comm {

namespace {
constexpr int kRounds = 4;  ///< Rounds in flight at once.
}  // namespace

Status PairwiseAllToAll(Collective& call,
                        std::span<const std::byte> input,
                        const Segments& sent,
                        std::span<std::byte> output,
                        const Segments& received,
                        int64_t element) {
  const int size = call.size();
  const int own = call.position();
  std::vector<std::pair<Collective::Pending, Collective::Pending>> rounds;
  for (int step = 1; step < size; ++step) {
    const int from = (own - step + size) % size;
    const int to = (own + step) % size;
    // Empty blocks travel, too: members that disagree about a block notice at once.
    auto arriving =
        call.Recv(from, Phase::kAllToAll, 0, 0,
                  Slice(output, received.begin(from) * element, received.count(from) * element));
    auto leaving = call.Send(to, Phase::kAllToAll, 0, 0,
                             Slice(input, sent.begin(to) * element, sent.count(to) * element));
    rounds.emplace_back(std::move(arriving), std::move(leaving));
    if (rounds.size() >= static_cast<size_t>(kRounds)) {
      const auto& oldest = rounds[rounds.size() - static_cast<size_t>(kRounds)];
      HEDDLE_RETURN_IF_ERROR(call.Wait(oldest.first));
      HEDDLE_RETURN_IF_ERROR(call.Wait(oldest.second));
    }
  }
  return call.WaitAll();
}

}  // namespace heddle::comm
