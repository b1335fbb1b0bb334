// A worker whose coordinator's name leads here, and that takes part in another job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class ElsewhereTest : public CoordinatorTest {
 protected:
  const wire::Refused& Stranger(const std::string& job_id, int64_t generation) {
    sent_.clear();
    Hello("b", [&](wire::Hello& hello) {
      hello.set_incarnation(std::string(16, 'S'));
      hello.set_job_id(job_id);
      hello.set_generation(generation);
    });
    static const wire::Refused kNone;
    const wire::ToWorker* refused = Last("b", wire::ToWorker::kRefused);
    EXPECT_NE(refused, nullptr);
    return refused == nullptr ? kNone : refused->refused();
  }
};

TEST_F(ElsewhereTest, IsRefusedForNowAndKeepsWhatItHas) {
  Form();
  const wire::Refused refused = Stranger("another", 5);
  EXPECT_FALSE(refused.permanent());
  EXPECT_TRUE(refused.rejoins()) << "when it has waited in vain";
  EXPECT_THAT(refused.reason(),
              HasSubstr("this is job job, and this worker takes part in another one"));
}

TEST_F(ElsewhereTest, DoesNotTakeThePlaceOfThisJobsWorker) {
  Form();
  Wait(2.9, {"a"});
  now_ += std::chrono::milliseconds(100);
  Stranger("another", 0);
  EXPECT_EQ(Count("worker_lost"), 0);
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 2);
}

TEST_F(ElsewhereTest, IsRefusedByACoordinatorWithoutAJob) {
  const wire::Refused refused = Stranger("another", 5);
  EXPECT_FALSE(refused.permanent());
  EXPECT_THAT(refused.reason(), HasSubstr("there is no job here"));
}

TEST_F(ElsewhereTest, OfThisJobOneIsStaleAtOnce) {
  Form();
  const wire::Refused refused = Stranger("job", 5);
  EXPECT_TRUE(refused.permanent());
  EXPECT_TRUE(refused.rejoins());
}

// Its process cannot take part, and nobody can ask it to leave before the next one is there.
TEST_F(ElsewhereTest, OfThisJobAsItWasSubmittedBeforeOneBeginsAnew) {
  Tell(Submitted{job_});
  const wire::Refused refused = Stranger("job", 0);
  EXPECT_TRUE(refused.permanent());
  EXPECT_TRUE(refused.rejoins());
  EXPECT_EQ(coordinator_.StatusAt(now_).workers_size(), 0);
}

}  // namespace
}  // namespace heddle::elastic
