// A worker that leaves its device to the job says what it computes on once it knows.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/member/member.h"

namespace heddle::elastic {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class DeviceOfJobTest : public testing::Test {
 protected:
  static MemberIdentity Identity() {
    MemberIdentity identity;
    identity.incarnation = std::string(16, 'a');
    identity.arithmetic = {{"processor", "EPYC"}};
    identity.device_of_job = true;
    return identity;
  }
  // Returns the Hellos that it sends in answer.
  std::vector<wire::Hello> Tell(const MemberEvent& event) {
    std::vector<wire::Hello> hellos;
    for (const MemberAction& action : member_.Handle(event, now_)) {
      const auto* send = std::get_if<SendToCoordinator>(&action);
      if (send != nullptr && send->message.has_hello()) {
        hellos.push_back(send->message.hello());
      }
    }
    return hellos;
  }
  void Welcome() {
    FromCoordinator event;
    event.message.mutable_welcome()->set_name("a");
    event.message.mutable_welcome()->set_job_id("job");
    Tell(event);
  }
  static std::string ProcessorIn(const wire::Hello& hello) {
    const auto found = hello.arithmetic().find("processor");
    return found == hello.arithmetic().end() ? "" : found->second;
  }

  Time now_{std::chrono::seconds(50)};
  Member member_{Identity(), MemberOptions(), now_};
  const JobApplied on_card_{.status = Status::Ok(), .arithmetic = {{"card", "H100"}}};
};

TEST_F(DeviceOfJobTest, ItSaysHelloAgain) {
  const auto first = Tell(StreamUp());
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_TRUE(first[0].device_of_job());
  EXPECT_EQ(ProcessorIn(first[0]), "EPYC");
  Welcome();
  const auto again = Tell(on_card_);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_FALSE(again[0].device_of_job());
  EXPECT_EQ(again[0].name(), "a");
  EXPECT_EQ(ProcessorIn(again[0]), "");
  EXPECT_EQ(again[0].arithmetic().at("card"), "H100");
}

TEST_F(DeviceOfJobTest, OnTheProcessorItHasNothingToAdd) {
  Tell(StreamUp());
  Welcome();
  EXPECT_THAT(Tell(JobApplied{Status::Ok()}), IsEmpty());
}

TEST_F(DeviceOfJobTest, WithoutAConnectionTheNextOneTells) {
  Tell(StreamUp());
  Welcome();
  Tell(StreamDown{"broken"});
  EXPECT_THAT(Tell(on_card_), IsEmpty());
  const auto next = Tell(StreamUp());
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].arithmetic().at("card"), "H100");
}

}  // namespace
}  // namespace heddle::elastic
