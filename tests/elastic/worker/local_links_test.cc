// Links within a machine, as a plan made before the workers has them and as the workers tell them.
#include "elastic/worker/measure/local_links.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"
#include "elastic/planning/links_json.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;

class LocalLinksTest : public testing::Test {
 protected:
  wire::LinksMeasured Answer(int rank, const std::vector<double>& rates) {
    wire::MeasureLinks request;
    request.set_request(7);
    request.set_rank(rank);
    request.mutable_transports()->Add(transports_.begin(), transports_.end());
    request.mutable_machine_rates()->Add(rates.begin(), rates.end());
    KeptFiles files(folder_.path());  // Each worker is a process of its own.
    return AnswerFromKept(files, request, {.worker = "w", .job = "job", .secret = "secret"});
  }
  std::string JoinedAnswers(const std::vector<double>& rates) {
    wire::Links links;
    links.add_places(0);
    links.add_places(1);
    AddPair(0, 1, JoinAnswers(Answer(0, rates), Answer(1, rates), transports_), links);
    return LinksToJson(links);
  }
  std::string Planned(const std::vector<double>& rates) {
    KeptFiles files(folder_.path());
    const auto links = LocalLinks(files, rates, transports_,
                                  {.worker = "links", .job = "plan", .secret = "secret"});
    EXPECT_TRUE(links.ok()) << links.status().ToString();
    return LinksToJson(*links);
  }

  TemporaryFolder folder_;
  std::vector<std::string> transports_ = {"shm", "tcp"};
};

TEST_F(LocalLinksTest, WorkersTellWhatAPlanWasMadeWith) {
  const std::string planned = Planned({1 << 26, 1 << 24});
  EXPECT_EQ(JoinedAnswers({1 << 26, 1 << 24}), planned);
  EXPECT_EQ(Planned({1 << 26, 1 << 24}), planned);
  EXPECT_NE(JoinedAnswers({1 << 24, 1 << 26}), planned) << "there is back";
}

TEST_F(LocalLinksTest, APlanIsMadeWithWhatWorkersHaveTold) {
  const std::string told = JoinedAnswers({1 << 24, 1 << 26});
  EXPECT_EQ(Planned({1 << 24, 1 << 26}), told);
}

TEST_F(LocalLinksTest, PairsOfEqualRatesAreOne) {
  KeptFiles files(folder_.path());
  const auto links =
      LocalLinks(files, {0, 0, 1 << 24, 0}, transports_, {.worker = "links", .secret = "secret"});
  ASSERT_TRUE(links.ok());
  EXPECT_THAT(links->places(), ElementsAre(0, 0, 1, 0));
  EXPECT_EQ(links->pairs_size(), 2) << "in the first place, and between both";
  for (const wire::Links::Pair& pair : links->pairs()) {
    EXPECT_EQ(pair.transports_size(), 2);
  }
}

TEST_F(LocalLinksTest, WithoutTransportsThereAreNoLinks) {
  transports_.clear();
  KeptFiles files(folder_.path());
  EXPECT_EQ(LocalLinks(files, {0, 0}, transports_, {})->places_size(), 0);
}

TEST_F(LocalLinksTest, ARateThatIsNoneIsRefused) {
  for (const double rate : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(Answer(0, {0, rate}).error(), "no rates of links");
  }
}

}  // namespace
}  // namespace heddle::elastic
