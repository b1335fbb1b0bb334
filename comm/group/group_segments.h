/// \file
/// Which groups of a communicator have a shared segment, and how the segments are formed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/group/segment.h"
#include "comm/message/call_signature.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

class Group;

/// The segments of a communicator's groups. Thread: any.
class GroupSegments {
 public:
  GroupSegments(Group& group, std::shared_ptr<SharedRegions> regions);

  /// The segment of the group that `options` names. The group's first call, on this worker that of
  /// `number`, forms it among all members. Null: the members do not all share memory. Errors: those
  /// of CallWaits::Look and of Communicator.
  Result<std::shared_ptr<GroupSegment>> Get(const CollectiveOptions& options,
                                            const CallNumber& number) HEDDLE_EXCLUDES(mutex_);
  /// GroupSegment::FindConflict for the group of the call; nullopt also while it is not formed.
  std::optional<Conflict> FindConflict(const CallNumber& number) HEDDLE_EXCLUDES(mutex_);

  void MemberEnded(int rank, const Status& status, bool left) HEDDLE_EXCLUDES(mutex_);
  void End(const Status& status) HEDDLE_EXCLUDES(mutex_);

  int members_here() const { return members_here_; }

 private:
  struct Entry {
    std::vector<int> ranks;  ///< By position.
    bool everyone = false;   ///< They are those of all members, in their order.
    uint64_t hash = 0;       ///< CallNumber::group.
    bool forming = true;
    std::shared_ptr<GroupSegment> group;  ///< Null after forming: members share no memory.
  };
  static bool Matches(const Entry& entry, std::span<const int> ranks);
  class Forming;
  /// Forms the segment of `entry`. Releases the lock while it communicates.
  Result<std::shared_ptr<GroupSegment>> FormEntry(Entry& entry,
                                                  const CallNumber& number,
                                                  Deadline deadline) HEDDLE_REQUIRES(mutex_);
  const std::string& NameOf(int rank) const;
  bool OnOneHost(const std::vector<int>& ranks) const;
  bool SharesWithAll(const std::vector<int>& ranks) const;
  Result<std::shared_ptr<GroupSegment>> Lead(Forming& call);
  Result<std::shared_ptr<GroupSegment>> Join(Forming& call);
  Result<Mapping> HandOutSegment(const Forming& call, uint64_t number) const;
  Result<Mapping> MapSegment(const Forming& call, uint64_t number) const;
  std::shared_ptr<GroupSegment> Make(const Forming& call, Mapping segment) const;

  Group& group_;
  const std::shared_ptr<SharedRegions> regions_;
  std::vector<std::string> hosts_;  ///< By rank: host identity; empty: it cannot share memory.
  int members_here_ = 0;
  std::atomic<uint64_t> next_segment_ = 1;

  Mutex mutex_;
  CondVar formed_;
  std::vector<std::shared_ptr<Entry>> entries_ HEDDLE_GUARDED_BY(mutex_);
  struct Ended {
    int rank = 0;
    Status status;
    bool left = false;
  };
  std::vector<Ended> members_ended_ HEDDLE_GUARDED_BY(mutex_);
  Status end_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
