/// \file
/// A benchmark knows its links as a job does, by measurement: every pair, one after the other,
/// and the collectives choose by the table.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace heddle::comm {

/// Called by all members of a group of one generation.
inline Status MeasureLinks(Endpoint& endpoint, Communicator& group) {
  std::vector<Link> row(static_cast<size_t>(group.size()));
  uint64_t tag = uint64_t{1} << 32;
  for (int a = 0; a < group.size(); ++a) {
    for (int b = a + 1; b < group.size(); ++b) {
      ++tag;
      if (group.rank() == a || group.rank() == b) {
        const int peer = group.rank() == a ? b : a;
        HEDDLE_ASSIGN_OR_RETURN(
            row[static_cast<size_t>(peer)],
            endpoint.MeasureLink(group, peer, tag, After(std::chrono::seconds(60))));
      }
      HEDDLE_RETURN_IF_ERROR(group.Barrier({.group = {}, .tag = tag, .deadline = {}}));
    }
  }
  return group.ShareLinks(row, {.group = {}, .tag = tag + 1, .deadline = {}});
}

}  // namespace heddle::comm
