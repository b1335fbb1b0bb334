/// \file
/// The copies of states that workers found to be altered: no generation may go on from them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

class Cluster;

/// The refused copies. Thread: one caller.
class RefusedCopies {
 public:
  /// One worker's copy of a state.
  struct Copy {
    int64_t generation = 0;
    int64_t step = 0;  ///< The snapshot's step; -1: the state in the holder's tensors.
    std::string holder = {};
    friend auto operator<=>(const Copy&, const Copy&) = default;
  };

  explicit RefusedCopies(Cluster& cluster) : cluster_(cluster) {}

  /// `receiver` refused a copy; that counts once it is stored.
  void Refuse(const Copy& copy, const std::string& receiver);
  /// `receiver` was given up: forgets its refusals of others' copies.
  void Forgive(const std::string& receiver);
  /// The coordinator stored its state: the refusals until now count.
  void NoteStored();
  /// The coordinator's process ended: forgets the refusals that it had not stored.
  void ForgetUnstored() { unstored_.clear(); }
  /// The coordinator's store was lost: forgets all refusals.
  void BeginEra();

  /// Checks that a generation does not start from a refused copy.
  void Check(const wire::Start& start);
  /// Whether a copy was ever refused, even if the refusal does not count any more.
  bool WasRefused(const Copy& copy) const { return ever_.count(copy) > 0; }

 private:
  Cluster& cluster_;
  std::map<Copy, std::string> unstored_;  ///< The receiver's key, by copy.
  std::map<Copy, std::string> refused_;
  std::set<Copy> ever_;
};

}  // namespace heddle::elastic
