#include "elastic/control/source/replica_placement.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ReplicaMember Member(const std::string& host, const std::string& domain = "", bool owns = true) {
  static int number = 0;
  return {
      .name = fmt::format("w{}", number++), .host = host, .failure_domain = domain, .owns = owns};
}

// What every answer must be, however good.
void CheckSound(const std::vector<ReplicaMember>& members,
                int copies,
                const std::vector<std::vector<int32_t>>& holders) {
  ASSERT_EQ(holders.size(), members.size());
  const auto count = static_cast<int>(members.size());
  std::vector<int> load(members.size(), 0);
  int parts = 0;
  for (int owner = 0; owner < count; ++owner) {
    const auto& mine = holders[static_cast<size_t>(owner)];
    const bool owns = members[static_cast<size_t>(owner)].owns;
    ASSERT_EQ(static_cast<int>(mine.size()), owns ? std::min(copies, count - 1) : 0);
    ASSERT_EQ(std::set<int32_t>(mine.begin(), mine.end()).size(), mine.size());
    for (const int32_t holder : mine) {
      ASSERT_NE(holder, owner);
      ASSERT_GE(holder, 0);
      ASSERT_LT(holder, count);
      ++load[static_cast<size_t>(holder)];
      ++parts;
    }
  }
  const int share = count == 0 ? 0 : (parts + count - 1) / count;
  EXPECT_LE(*std::max_element(load.begin(), load.end()), share);
}

bool InAnotherDomain(const ReplicaMember& a, const ReplicaMember& b) {
  return !a.failure_domain.empty() && !b.failure_domain.empty() &&
         a.failure_domain != b.failure_domain;
}

// How many holders are on the owner's host, and how many not surely in another domain.
using Quality = std::pair<int, int>;
Quality QualityOf(const std::vector<ReplicaMember>& members,
                  const std::vector<std::vector<int32_t>>& holders) {
  Quality quality;
  for (size_t owner = 0; owner < members.size(); ++owner) {
    for (const int32_t rank : holders[owner]) {
      const ReplicaMember& holder = members[static_cast<size_t>(rank)];
      quality.first += members[owner].host == holder.host ? 1 : 0;
      quality.second += InAnotherDomain(members[owner], holder) ? 0 : 1;
    }
  }
  return quality;
}

// Of all ways in which nobody keeps more than one part.
Quality BestOfAll(const std::vector<ReplicaMember>& members) {
  std::vector<int32_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  Quality best(INT32_MAX, INT32_MAX);
  do {
    std::vector<std::vector<int32_t>> holders(members.size());
    bool possible = true;
    for (size_t owner = 0; owner < members.size(); ++owner) {
      if (members[owner].owns) {
        possible = possible && order[owner] != static_cast<int32_t>(owner);
        holders[owner] = {order[owner]};
      }
    }
    if (possible) {
      best = std::min(best, QualityOf(members, holders));
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

std::vector<ReplicaMember> RandomMembers(Random& random, size_t count) {
  const uint64_t hosts = 1 + random.Below(count + 1);
  const uint64_t domains = 1 + random.Below(4);
  std::vector<ReplicaMember> members;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t host = random.Below(hosts);
    // A host is in one domain, mostly; the first may be unknown.
    const uint64_t domain = random.Below(20) == 0 ? random.Below(domains) : host % domains;
    members.push_back(Member(fmt::format("h{}", host),
                             domain == 0 ? "" : fmt::format("d{}", domain), random.Below(6) > 0));
  }
  return members;
}

TEST(ReplicaPlacementTest, NobodyAloneKeepsAnything) {
  EXPECT_THAT(PlaceReplicas({}, 2), IsEmpty());
  EXPECT_THAT(PlaceReplicas({Member("h")}, 2), ElementsAre(IsEmpty()));
}

TEST(ReplicaPlacementTest, TwoWorkersKeepEachOthersPartEvenOnOneHost) {
  EXPECT_THAT(PlaceReplicas({Member("h"), Member("h")}, 3),
              ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(ReplicaPlacementTest, AnotherHostAndThenAnotherDomainIsTaken) {
  const auto hosts = PlaceReplicas({Member("h"), Member("h"), Member("g"), Member("g")}, 1);
  EXPECT_TRUE(hosts[0][0] >= 2 && hosts[1][0] >= 2 && hosts[2][0] < 2 && hosts[3][0] < 2);
  const auto domains =
      PlaceReplicas({Member("1", "x"), Member("2", "y"), Member("3", "x"), Member("4", "y")}, 1);
  EXPECT_TRUE(domains[0][0] % 2 == 1 && domains[1][0] % 2 == 0 && domains[2][0] % 2 == 1 &&
              domains[3][0] % 2 == 0);
}

TEST(ReplicaPlacementTest, CopiesOfOnePartAreApart) {
  std::vector<ReplicaMember> members;
  for (int i = 0; i < 12; ++i) {
    members.push_back(Member(fmt::format("h{}", i / 2), fmt::format("d{}", i / 4)));
  }
  const auto holders = PlaceReplicas(members, 2);
  CheckSound(members, 2, holders);
  for (size_t owner = 0; owner < members.size(); ++owner) {
    std::set<std::string> domains = {members[owner].failure_domain};
    for (const int32_t holder : holders[owner]) {
      domains.insert(members[static_cast<size_t>(holder)].failure_domain);
    }
    EXPECT_EQ(domains.size(), 3U) << owner;
  }
}

TEST(ReplicaPlacementTest, FewOwnersDoNotMeetInOneHolder) {
  std::vector<ReplicaMember> members;
  for (int i = 0; i < 9; ++i) {
    members.push_back(Member(fmt::format("h{}", i), "", i < 3));
  }
  CheckSound(members, 3, PlaceReplicas(members, 3));
}

TEST(ReplicaPlacementTest, SmallClustersAreServedAsWellAsAnyAnswerCan) {
  Random random(heddle::testing::TestSeed());
  for (int round = 0; round < 600; ++round) {
    const auto members = RandomMembers(random, 2 + random.Below(6));
    const auto holders = PlaceReplicas(members, 1);
    CheckSound(members, 1, holders);
    std::string text;
    for (size_t owner = 0; owner < members.size(); ++owner) {
      text += fmt::format(" {}/{}:{}", members[owner].host, members[owner].failure_domain,
                          fmt::join(holders[owner], ","));
    }
    ASSERT_EQ(QualityOf(members, holders), BestOfAll(members)) << text;
  }
}

TEST(ReplicaPlacementTest, SeveralCopiesAreSound) {
  Random random(heddle::testing::TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const auto members = RandomMembers(random, 1 + random.Below(12));
    const int copies = static_cast<int>(random.Below(5));
    const auto holders = PlaceReplicas(members, copies);
    CheckSound(members, copies, holders);
    EXPECT_EQ(holders, PlaceReplicas(members, copies));
  }
}

TEST(ReplicaPlacementTest, ThousandsOfWorkersArePlaced) {
  Random random(heddle::testing::TestSeed());
  for (const bool lopsided : {false, true}) {
    std::vector<ReplicaMember> members;
    for (uint64_t i = 0; i < 2000; ++i) {
      const uint64_t host = random.Below(400);
      const uint64_t domain = lopsided ? (host < 40 ? 1 : 0) : host % 20;
      members.push_back(Member(fmt::format("h{}", host), fmt::format("d{}", domain)));
    }
    const auto holders = PlaceReplicas(members, 2);
    CheckSound(members, 2, holders);
    const Quality quality = QualityOf(members, holders);
    EXPECT_EQ(quality.first, 0);
    if (!lopsided) {
      EXPECT_EQ(quality.second, 0);
    }
  }
}

// All that two or three copies may be faulted for, in the order of weight: two of a part on one
// host count less than one on its owner's.
struct Faults {
  int same_host = 0;
  int two_on_a_host = 0;
  int not_another_domain = 0;
  int two_in_a_domain = 0;
};
Faults FaultsOf(const std::vector<ReplicaMember>& members,
                const std::vector<std::vector<int32_t>>& holders) {
  Faults faults;
  const auto [same_host, not_another] = QualityOf(members, holders);
  faults.same_host = same_host;
  faults.not_another_domain = not_another;
  for (const std::vector<int32_t>& mine : holders) {
    for (size_t i = 0; i < mine.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const ReplicaMember& one = members[static_cast<size_t>(mine[i])];
        const ReplicaMember& other = members[static_cast<size_t>(mine[j])];
        faults.two_on_a_host += one.host == other.host ? 1 : 0;
        faults.two_in_a_domain += InAnotherDomain(one, other) ? 0 : 1;
      }
    }
  }
  return faults;
}

// So many of each size that no domain is more than its share: nobody needs to be faulted.
TEST(ReplicaPlacementTest, WhereAllDomainsAreAlikeEveryCopyIsInItsOwn) {
  for (int domains = 2; domains <= 5; ++domains) {
    for (int hosts = 1; hosts <= 3; ++hosts) {
      for (int workers = 1; workers <= 3; ++workers) {
        std::vector<ReplicaMember> members;
        for (int i = 0; i < domains * hosts * workers; ++i) {
          const int domain = i % domains;
          const int host = i / domains % hosts;
          members.push_back(
              Member(fmt::format("h{}-{}", domain, host), fmt::format("d{}", domain)));
        }
        for (int copies = 1; copies < domains; ++copies) {
          const auto holders = PlaceReplicas(members, copies);
          CheckSound(members, copies, holders);
          const Faults faults = FaultsOf(members, holders);
          EXPECT_EQ(faults.same_host + faults.two_on_a_host, 0) << domains << hosts << workers;
          EXPECT_EQ(faults.not_another_domain, 0) << domains << hosts << workers << copies;
          EXPECT_EQ(faults.two_in_a_domain, 0) << domains << hosts << workers << copies;
        }
      }
    }
  }
}

TEST(ReplicaPlacementTest, HostsOfUnlikeSizeShareTheirPartsAcross) {
  for (int largest = 1; largest <= 6; ++largest) {
    std::vector<ReplicaMember> members;
    for (int i = 0; i < largest; ++i) {
      members.push_back(Member("large"));
    }
    for (int i = 0; i < 6; ++i) {
      members.push_back(Member(i < 3 ? "middle" : fmt::format("small-{}", i)));
    }
    EXPECT_EQ(QualityOf(members, PlaceReplicas(members, 1)).first, 0) << largest;
  }
}

// Beyond what a count can prove: how good clusters of any shape are served now, which they must be
// afterwards, too. Always the same clusters.
TEST(ReplicaPlacementTest, ClustersOfAnyShapeAreServedNoWorseThanBefore) {
  Random random(1);
  Faults faults;
  for (int round = 0; round < 120; ++round) {
    const auto members = RandomMembers(random, 8 + random.Below(20));
    const int copies = static_cast<int>(1 + random.Below(3));
    const auto holders = PlaceReplicas(members, copies);
    CheckSound(members, copies, holders);
    const Faults now = FaultsOf(members, holders);
    faults.same_host += now.same_host;
    faults.two_on_a_host += now.two_on_a_host;
    faults.not_another_domain += now.not_another_domain;
    faults.two_in_a_domain += now.two_in_a_domain;
  }
  EXPECT_LE(faults.same_host, 180);
  EXPECT_LE(faults.two_on_a_host, 278);
  EXPECT_LE(faults.not_another_domain, 2455);
  EXPECT_LE(faults.two_in_a_domain, 1724);
}

}  // namespace
}  // namespace heddle::elastic
