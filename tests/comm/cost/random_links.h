/// \file
/// Random tables of links, for tests that must hold for any links.
#pragma once

#include <cmath>
#include <vector>

#include "base/random.h"
#include "comm/cost/links.h"

namespace heddle::comm {

/// The links between `size` members, of one to four sorts, so that there are gaps and ties between
/// them; in half of the tables each link varies by up to 20%.
inline LinkTable RandomLinks(Random& random, int size) {
  const double noise = random.Below(2) == 0 ? 0 : 0.2;
  const auto sorts = static_cast<int>(1 + random.Below(4));
  std::vector<Link> links(static_cast<size_t>(sorts));
  for (Link& link : links) {
    link.latency_seconds = std::pow(10, -6 + 3 * random.Uniform());
    link.bytes_per_second = std::pow(10, 7 + 3 * random.Uniform());
    link.crowding = random.Below(4) == 0 ? 1 + 3 * random.Uniform() : 1;
  }
  std::vector<int> part(static_cast<size_t>(size));
  for (int& number : part) {
    number = static_cast<int>(random.Below(3));
  }
  const bool parts = random.Below(2) == 0;
  LinkTable table(size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const bool near = part[static_cast<size_t>(from)] == part[static_cast<size_t>(to)];
      const size_t sort = parts ? (near ? 0 : links.size() - 1) : random.Below(links.size());
      table.At(from, to) = links[sort];
      table.At(from, to).latency_seconds *= 1 + noise * random.Uniform();
      table.At(from, to).bytes_per_second *= 1 + noise * random.Uniform();
    }
  }
  return table;
}

}  // namespace heddle::comm
