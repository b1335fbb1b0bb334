#include "elastic/planning/shared_cards.h"

#include <algorithm>
#include <map>
#include <utility>

namespace heddle::elastic {
namespace {

void Divide(const std::vector<size_t>& sharers,
            const std::vector<CardPart>& parts,
            std::vector<program::WorkerProfile>& workers) {
  int64_t left = 0;
  for (const size_t i : sharers) {
    left = std::max(left, parts[i].bytes);
  }
  left -= (std::ssize(sharers) - 1) * kCardOverheadBytes;
  std::vector<size_t> equal;
  for (const size_t i : sharers) {
    const int64_t taken = workers[i].memory_bytes + workers[i].scratch_bytes;
    if (taken < parts[i].bytes) {
      left -= taken;
    } else {
      equal.push_back(i);
    }
  }
  for (const size_t i : equal) {
    workers[i].memory_bytes =
        std::max<int64_t>(1, left / std::ssize(equal) - workers[i].scratch_bytes);
  }
}

}  // namespace

void DivideCards(const std::vector<CardPart>& parts, std::vector<program::WorkerProfile>& workers) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> cards;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].card.empty()) {
      cards[{parts[i].host, parts[i].card}].push_back(i);
    }
  }
  for (const auto& [card, sharers] : cards) {
    if (sharers.size() > 1) {
      Divide(sharers, parts, workers);
    }
  }
}

}  // namespace heddle::elastic
