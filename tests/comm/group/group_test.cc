// A group by its members' addresses alone, before anything is attached.
#include "comm/group/group.h"

#include <gtest/gtest.h>

#include "comm/stream/event_loop.h"

namespace heddle::comm {
namespace {

int MembersHere(int rank, const std::vector<AddressParts>& addresses) {
  auto loop = EventLoop::Create();
  EXPECT_TRUE(loop.ok()) << loop.status().ToString();
  GroupOptions options;
  options.rank = rank;
  for (const AddressParts& parts : addresses) {
    options.members.push_back(
        {"worker-" + std::to_string(options.members.size()), FormatAddress(parts)});
  }
  const auto group =
      std::make_shared<Group>(*loop, std::move(options), std::make_shared<SharedRegions>(nullptr));
  return group->members_here();
}

// It says how many share this host's processors, so that the transports do not matter.
TEST(GroupTest, MembersOfThisHostAreCountedWhateverTheyOpen) {
  const std::vector<AddressParts> addresses{{{"host", "a"}, {"tcp", "10.0.0.1:1"}},
                                            {{"host", "b"}, {"tcp", "10.0.0.2:1"}},
                                            {{"host", "a"}, {"shm", "x"}},
                                            {{"host", "b"}, {"tcp", "10.0.0.2:2"}},
                                            {{"host", "b"}, {"shm", "y"}}};
  EXPECT_EQ(MembersHere(0, addresses), 2);
  EXPECT_EQ(MembersHere(1, addresses), 3);
  EXPECT_EQ(MembersHere(4, addresses), 3);
}

}  // namespace
}  // namespace heddle::comm
