/// \file
/// Which key/value head a query head of attention reads: in the whole, and in a share of the query
/// heads that begins or ends within a group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/graph/attributes.h"

namespace heddle::graph {

struct HeadGroups {
  int64_t heads;     ///< Query heads here.
  int64_t kv_heads;  ///< Key/value heads here: those that the query heads read.
  int64_t group;     ///< Query heads of the whole that read one key/value head.
  int64_t before;    ///< Of the first key/value head: its query heads that come before these.

  /// From `heads` and `kv_heads`; of a share also from `group`, and `first_head`, its first query
  /// head in the whole.
  explicit HeadGroups(const Attributes& attributes)
      : heads(attributes.Int("heads")),
        kv_heads(attributes.Int("kv_heads")),
        group(attributes.FindInt("group").value_or(kv_heads > 0 ? heads / kv_heads : 0)),
        before(group > 0 ? attributes.FindInt("first_head").value_or(0) % group : 0) {}

  /// Whether so many query heads read so many key/value heads.
  bool Fit() const {
    return heads > 0 && group > 0 && before >= 0 &&
           (before + heads + group - 1) / group == kv_heads;
  }

  /// First query head here that reads key/value head `kv`; `heads` for kv = kv_heads.
  int64_t FirstOf(int64_t kv) const { return std::clamp<int64_t>(kv * group - before, 0, heads); }
};

}  // namespace heddle::graph
