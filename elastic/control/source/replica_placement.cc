// Each copy begins as a rotation of a ring of the members, in which members that may be lost
// together are neighbours. It is rotated by the size of the largest such group: unless that group
// is more than half of the ring, no member holds a replica for one of its own group. Then two or
// three replicas exchange their holders where that helps; with few members and one copy, any number
// of them do.
#include "elastic/control/source/replica_placement.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

namespace heddle::elastic {
namespace {

// The costs of a holder. No sum of lesser costs in an exchange outweighs a greater one.
constexpr int64_t kTwoInADomain = 1;  // Two holders of one shard.
constexpr int64_t kNotAnotherDomain = 1 << 8;
constexpr int64_t kTwoOnAHost = 1 << 16;
constexpr int64_t kSameHost = 1 << 24;
constexpr int64_t kBeyondItsShare = int64_t{1} << 32;
constexpr int64_t kImpossible = int64_t{1} << 48;  // The owner itself, or one holder twice.

// How many exchanges, spread over the ring, are tried for a replica that could be placed better.
constexpr size_t kMaxPairs = 64;
constexpr size_t kMaxTriplesSide = 8;
constexpr int kMaxRounds = 4;
// Up to this many members get an optimal placement.
constexpr size_t kMaxExact = 64;

// A member, in the order of the ring.
struct Place {
  int32_t rank = 0;
  int host = 0;
  int domain = 0;  ///< 0: unknown.
  bool owns = true;
};

struct Ring {
  std::vector<Place> places;
  size_t turn = 1;
  bool by_domain = false;  ///< More than one failure domain is known.
};

Ring RingOf(const std::vector<ReplicaMember>& members) {
  std::map<std::string, size_t> on_host;
  std::map<std::string, size_t> in_domain;
  for (const ReplicaMember& member : members) {
    ++on_host[member.host];
    ++in_domain[member.failure_domain];
  }
  Ring ring;
  ring.by_domain = in_domain.size() - in_domain.count("") > 1;
  // The largest groups come first.
  std::vector<std::tuple<size_t, std::string, size_t, std::string, std::string, size_t>> keys;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const ReplicaMember& member = members[rank];
    const std::string domain = ring.by_domain ? member.failure_domain : "";
    const size_t together = ring.by_domain ? in_domain.at(domain) : on_host.at(member.host);
    ring.turn = std::max(ring.turn, together);
    keys.emplace_back(members.size() - (ring.by_domain ? together : 0), domain,
                      members.size() - on_host.at(member.host), member.host, member.name, rank);
  }
  std::sort(keys.begin(), keys.end());
  std::map<std::string, int> hosts;
  std::map<std::string, int> domains = {{"", 0}};
  for (const auto& key : keys) {
    const ReplicaMember& member = members[std::get<5>(key)];
    const auto number = [](std::map<std::string, int>& numbers, const std::string& word) {
      return numbers.emplace(word, static_cast<int>(numbers.size())).first->second;
    };
    ring.places.push_back({.rank = static_cast<int32_t>(std::get<5>(key)),
                           .host = number(hosts, member.host),
                           .domain = number(domains, member.failure_domain),
                           .owns = member.owns});
  }
  return ring;
}

// Which member holds which replica: one holder a slot, the slots of a member side by side. All
// numbers are places in the ring.
class Placement {
 public:
  Placement(Ring ring, size_t copies) : ring_(std::move(ring)), copies_(copies) {
    const size_t count = ring_.places.size();
    load_.resize(count, 0);
    holder_.resize(count * copies);
    size_t parts = 0;
    for (const Place& place : ring_.places) {
      parts += place.owns ? copies : 0;
    }
    share_ = static_cast<int64_t>((parts + count - 1) / count);
    std::vector<size_t> turns;
    for (size_t copy = 0; copy < copies; ++copy) {
      size_t turn = ring_.turn * (copy + 1) % count;
      while (turn == 0 || std::find(turns.begin(), turns.end(), turn) != turns.end()) {
        turn = (turn + 1) % count;
      }
      turns.push_back(turn);
      for (size_t at = 0; at < count; ++at) {
        holder_[at * copies + copy] = (at + turn) % count;
        load_[(at + turn) % count] += ring_.places[at].owns ? 1 : 0;
      }
    }
  }

  void Improve() {
    bool changed = true;
    for (int round = 0; round < kMaxRounds && changed; ++round) {
      changed = false;
      for (size_t slot = 0; slot < holder_.size(); ++slot) {
        changed = ImproveSlot(slot) || changed;
      }
    }
    if (copies_ == 1 && holder_.size() <= kMaxExact) {
      while (RotateCheapCycle()) {
      }
    }
  }

  std::vector<std::vector<int32_t>> ByRank() const {
    std::vector<std::vector<int32_t>> holders(ring_.places.size());
    for (size_t slot = 0; slot < holder_.size(); ++slot) {
      const Place& owner = ring_.places[slot / copies_];
      if (owner.owns) {
        holders[static_cast<size_t>(owner.rank)].push_back(ring_.places[holder_[slot]].rank);
      }
    }
    return holders;
  }

 private:
  bool DomainsDiffer(const Place& a, const Place& b) const {
    return !ring_.by_domain || (a.domain != 0 && b.domain != 0 && a.domain != b.domain);
  }

  int64_t CostOfPair(size_t owner, size_t holder) const {
    const Place& place = ring_.places[owner];
    if (!place.owns) {
      return 0;  // Without a shard it does not matter who its holder is.
    }
    const Place& other = ring_.places[holder];
    return (holder == owner ? kImpossible : 0) + (other.host == place.host ? kSameHost : 0) +
           (DomainsDiffer(place, other) ? 0 : kNotAnotherDomain);
  }

  int64_t CostOfOwner(size_t owner) const {
    if (!ring_.places[owner].owns) {
      return 0;
    }
    int64_t cost = 0;
    for (size_t i = owner * copies_; i < (owner + 1) * copies_; ++i) {
      const Place& holder = ring_.places[holder_[i]];
      cost += CostOfPair(owner, holder_[i]);
      for (size_t j = owner * copies_; j < i; ++j) {
        const Place& other = ring_.places[holder_[j]];
        cost += holder_[i] == holder_[j] ? kImpossible : 0;
        cost += holder.host == other.host ? kTwoOnAHost : 0;
        cost += DomainsDiffer(holder, other) ? 0 : kTwoInADomain;
      }
    }
    return cost;
  }

  int64_t CostOfLoad(size_t holder) const {
    return kBeyondItsShare * std::max<int64_t>(0, load_[holder] - share_);
  }

  // The cost of one slot of each of several owners, among which an exchange permutes the holders.
  int64_t CostOf(std::initializer_list<size_t> slots) const {
    int64_t cost = 0;
    for (const size_t slot : slots) {
      cost += CostOfOwner(slot / copies_) + CostOfLoad(holder_[slot]);
    }
    return cost;
  }

  // Gives each slot the holder of the next one, and the last slot that of the first.
  void Rotate(std::initializer_list<size_t> slots) {
    const auto count = [&](int64_t by) {
      for (const size_t slot : slots) {
        load_[holder_[slot]] += ring_.places[slot / copies_].owns ? by : 0;
      }
    };
    count(-1);
    const size_t first = holder_[*slots.begin()];
    for (const size_t* slot = slots.begin(); slot + 1 != slots.end(); ++slot) {
      holder_[*slot] = holder_[*(slot + 1)];
    }
    holder_[*(slots.end() - 1)] = first;
    count(1);
  }

  bool RotateIfBetter(std::initializer_list<size_t> slots, std::initializer_list<size_t> back) {
    const int64_t before = CostOf(slots);
    Rotate(slots);
    if (CostOf(slots) < before) {
      return true;
    }
    Rotate(back);
    return false;
  }

  bool ImproveSlot(size_t slot) {
    const size_t count = holder_.size();
    const auto owner = [this](size_t other) { return other / copies_; };
    const auto stride = [count](size_t most) { return (count + most - 1) / most; };
    bool changed = false;
    for (size_t step = 1; step < count && CostOf({slot}) > 0; step += stride(kMaxPairs)) {
      const size_t other = (slot + step) % count;
      changed =
          (owner(other) != owner(slot) && RotateIfBetter({slot, other}, {slot, other})) || changed;
    }
    const size_t side = stride(kMaxTriplesSide);
    for (size_t a = 1; a < count && CostOf({slot}) > 0; a += side) {
      for (size_t b = 1; b < count; b += side) {
        const size_t second = (slot + a) % count;
        const size_t third = (slot + b) % count;
        if (owner(second) != owner(slot) && owner(third) != owner(slot) &&
            owner(second) != owner(third)) {
          changed = RotateIfBetter({slot, second, third}, {third, second, slot}) || changed;
        }
      }
    }
    return changed;
  }

  // With one copy the holders are a permutation of the members. It is optimal if no cycle of
  // members, each of which takes the holder of the next, lowers the cost. Finds a cycle that does
  // by the method of Bellman and Ford, and rotates its holders. Returns false if there is none.
  bool RotateCheapCycle() {
    const size_t count = holder_.size();
    std::vector<int64_t> saved(count, 0);
    std::vector<size_t> before(count, 0);
    size_t last = count;
    for (size_t round = 0; round < count; ++round) {
      last = count;
      for (size_t a = 0; a < count; ++a) {
        for (size_t b = 0; b < count; ++b) {
          const int64_t cost = saved[a] + CostOfPair(a, holder_[b]) - CostOfPair(a, holder_[a]);
          if (a != b && cost < saved[b]) {
            saved[b] = cost;
            before[b] = a;
            last = b;
          }
        }
      }
      if (last == count) {
        return false;
      }
    }
    size_t on_cycle = last;
    for (size_t i = 0; i < count; ++i) {
      on_cycle = before[on_cycle];
    }
    // Backwards along the cycle, each member hands its holder to the one before.
    size_t at = on_cycle;
    size_t handed = holder_[at];
    do {
      at = before[at];
      std::swap(handed, holder_[at]);
    } while (at != on_cycle);
    for (size_t owner = 0; owner < count; ++owner) {
      load_[holder_[owner]] = ring_.places[owner].owns ? 1 : 0;
    }
    return true;
  }

  const Ring ring_;
  const size_t copies_;
  std::vector<size_t> holder_;
  std::vector<int64_t> load_;  ///< Replicas that each member holds.
  int64_t share_ = 0;          ///< The most replicas that a member should hold.
};

}  // namespace

std::vector<std::vector<int32_t>> PlaceReplicas(const std::vector<ReplicaMember>& members,
                                                int copies) {
  if (members.size() < 2 || copies <= 0) {
    return std::vector<std::vector<int32_t>>(members.size());
  }
  Placement placement(RingOf(members), std::min(static_cast<size_t>(copies), members.size() - 1));
  placement.Improve();
  return placement.ByRank();
}

}  // namespace heddle::elastic
