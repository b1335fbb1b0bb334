/// \file
/// Copies of a state that a worker found to be changed: no generation may go on from them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class RefusedCopies {
 public:
  struct Copy {
    int64_t generation = 0;
    int64_t step = 0;  ///< Of the snapshot; -1: the holder's tensors.
    std::string holder = {};
    friend auto operator<=>(const Copy&, const Copy&) = default;
  };

  explicit RefusedCopies(Cluster& cluster) : cluster_(cluster) {}

  /// It counts once that is stored.
  void Refuse(const Copy& copy, const std::string& receiver);
  /// What it refused was not refused: it was given up.
  void Forgive(const std::string& receiver);
  void NoteStored();
  /// The coordinator's process has ended.
  void ForgetUnstored() { unstored_.clear(); }
  /// Its store was lost.
  void BeginEra();

  void Check(const wire::Start& start);
  /// Also where that was void afterwards.
  bool WasRefused(const Copy& copy) const { return ever_.count(copy) > 0; }

 private:
  Cluster& cluster_;
  std::map<Copy, std::string> unstored_;  ///< And by whom.
  std::map<Copy, std::string> refused_;
  std::set<Copy> ever_;
};

}  // namespace heddle::elastic
