/// \file
/// What was measured, written and read again: the same figures, and refused where the job is not
/// what was measured.
#include "elastic/planning/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/protocol/link_figures.h"
#include "engine/graph/models/model.h"
#include "engine/graph/operator.h"
#include "tests/support/graph/random_graph.h"

namespace heddle::elastic {
namespace {

using ::testing::HasSubstr;

class ProfileFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      MeasuredWorker worker{.worker = name, .host = "h"};
      worker.measurement.profile_measured_at = 1.5e9 + 0.125;
      worker.measurement.speed = 0.3;
      worker.measurement.profile.worker = name;
      worker.measurement.profile.flops_per_second = 1e9 / 3;
      worker.measurement.profile.bytes_per_second = 2e9 / 7;
      for (const graph::Node& node : graph_.nodes) {
        worker.measurement.profile.seconds[graph::NodeSignature(graph_, node)] = 0.1;
      }
      worker.measurement.link.link = {
          .latency_seconds = 1e-5 / 3, .bytes_per_second = 1e9, .transport = "tcp"};
      file_.workers.push_back(worker);
      job::WorkerSection section;
      section.name = name;
      section.emulation.speed = 0.3;
      job_.workers.push_back(section);
    }
    job_.threads = 1;
  }

  std::string Refusal() const {
    const auto request = PlanRequestOf(file_, job_, graph_);
    return request.ok() ? "" : request.status().message();
  }

  struct PairOfPlaces {
    int32_t a = 0;
    int32_t b = 0;
    double latency_seconds = 0;
  };
  /// One transport a pair; the way back takes ten times as long.
  static wire::Links Links(const std::vector<int32_t>& places,
                           const std::vector<PairOfPlaces>& pairs) {
    wire::Links links;
    links.mutable_places()->Add(places.begin(), places.end());
    for (const PairOfPlaces& each : pairs) {
      wire::Links::Transport transport;
      transport.set_name("tcp");
      transport.set_latency_seconds(each.latency_seconds);
      transport.set_bytes_per_second(1e9);
      transport.set_back_latency_seconds(10 * each.latency_seconds);
      transport.set_back_bytes_per_second(2e9);
      AddPair(each.a, each.b, {transport}, links);
    }
    return links;
  }

  const graph::Graph graph_ = testing::RandomGraph(1, DType::kF32);
  ProfileFile file_;
  job::JobConfig job_;
};

TEST_F(ProfileFileTest, WhatIsReadIsWhatWasWritten) {
  file_.workers[1].slowdown = 1.5;
  file_.links = Links({0, 1}, {{0, 1, 1e-5}});
  const std::string text = ProfileFileToJson(file_);
  const auto read = ProfileFileFromJson(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->workers.size(), 2U);
  EXPECT_EQ(read->workers[0].measurement.profile_measured_at, 1.5e9 + 0.125);
  EXPECT_EQ(read->workers[0].measurement.profile.flops_per_second, 1e9 / 3);
  EXPECT_EQ(read->workers[0].measurement.link.link.latency_seconds, 1e-5 / 3);
  EXPECT_EQ(read->workers[1].slowdown, 1.5);
  EXPECT_EQ(read->links.pairs(0).transports(0).latency_seconds(), 1e-5);
  EXPECT_EQ(ProfileFileToJson(*read), text);
}

TEST_F(ProfileFileTest, TheJobsWorkersComeSortedWithItsMemory) {
  std::swap(job_.workers[0], job_.workers[1]);
  job_.workers[0].emulation.memory_bytes = 77;
  const auto request = PlanRequestOf(file_, job_, graph_);
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->candidates[0].name, "a");
  EXPECT_EQ(request->candidates[1].name, "b");
  EXPECT_EQ(MeasurementFromJson(request->candidates[0].profile_json)->profile.memory_bytes, 0);
  EXPECT_EQ(MeasurementFromJson(request->candidates[1].profile_json)->profile.memory_bytes, 77);
}

TEST_F(ProfileFileTest, ACardsMemoryIsItsOwnUnlessTheJobGivesLess) {
  for (MeasuredWorker& worker : file_.workers) {
    worker.measurement.card = "GPU-1";
    worker.measurement.card_bytes = 1000;
    worker.measurement.profile.scratch_bytes = 30;
  }
  job_.workers[0].emulation.memory_bytes = 77;
  const auto read = ProfileFileFromJson(ProfileFileToJson(file_));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const auto request = PlanRequestOf(*read, job_, graph_);
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  const auto memory = [&](size_t i) {
    const auto measurement = MeasurementFromJson(request->candidates[i].profile_json);
    EXPECT_EQ(measurement->card, "GPU-1");
    return measurement->profile.memory_bytes;
  };
  EXPECT_EQ(memory(0), 77 - 30);
  EXPECT_EQ(memory(1), 1000 - 30);
}

// What a run writes is what its planner was asked, so that the same question can be asked again.
TEST_F(ProfileFileTest, WhatAPlannerWasAskedIsAskedAgain) {
  job_.workers[1].emulation.memory_bytes = 77;
  file_.workers[1].slowdown = 2;
  file_.links = Links({0, 1}, {{0, 1, 1e-5}, {1, 1, 1e-6}});
  const auto asked = PlanRequestOf(file_, job_, graph_);
  ASSERT_TRUE(asked.ok()) << asked.status().ToString();
  const auto text = ProfileFileJsonOf(*asked);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const auto again = PlanRequestOf(*ProfileFileFromJson(*text), job_, graph_);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*ProfileFileJsonOf(*again), *text);
  ASSERT_EQ(again->candidates.size(), 2U);
  EXPECT_EQ(again->candidates[1].profile_json, asked->candidates[1].profile_json);
  EXPECT_EQ(again->candidates[1].host, "h");
  EXPECT_EQ(again->candidates[1].slowdown, 2);
  EXPECT_EQ(again->links.SerializeAsString(), asked->links.SerializeAsString());
}

// The file has three workers in another order, the job two of them.
TEST_F(ProfileFileTest, LinksAreThoseBetweenTheJobsWorkers) {
  MeasuredWorker third = file_.workers[0];
  third.worker = "c";
  file_.workers.insert(file_.workers.begin(), third);  // c, a, b
  std::swap(file_.workers[1], file_.workers[2]);       // c, b, a
  file_.links = Links({0, 1, 2}, {{0, 1, 1}, {0, 2, 2}, {1, 2, 3}});
  const auto request = PlanRequestOf(file_, job_, graph_);
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  ASSERT_EQ(request->links.places_size(), 2);
  ASSERT_EQ(request->links.pairs_size(), 1);
  const wire::Links::Pair& pair = request->links.pairs(0);
  EXPECT_EQ(pair.a(), 0);
  EXPECT_EQ(pair.b(), 1);
  EXPECT_EQ(pair.transports(0).latency_seconds(), 30) << "from a to b: the way back of b to a";
  EXPECT_EQ(pair.transports(0).back_latency_seconds(), 3);
}

TEST_F(ProfileFileTest, WhatWasMeasuredAsSomethingElseIsRefused) {
  EXPECT_EQ(Refusal(), "");
  job_.workers[1].emulation.speed = 0.5;
  EXPECT_THAT(Refusal(),
              HasSubstr("worker b was measured with emulate.speed 0.3, the job has 0.5"));
  job_.workers[1].emulation.speed = 0.3;
  job_.workers[0].emulation.link_bytes_per_second = 1e6;
  EXPECT_THAT(Refusal(), HasSubstr("worker a was measured with emulate.link"));
  job_.workers[0].emulation.link_bytes_per_second = 0;
  job_.threads = 2;
  EXPECT_THAT(Refusal(), HasSubstr("threads 1, the job has 2"));
  job_.threads = 1;
  auto& seconds = file_.workers[1].measurement.profile.seconds;
  seconds.erase(seconds.begin());
  EXPECT_THAT(Refusal(), HasSubstr("worker b was measured with another model"));
  file_.workers.pop_back();
  EXPECT_THAT(Refusal(), HasSubstr("worker b of the job is not in it"));
}

TEST_F(ProfileFileTest, AnotherDivisionOfLayersIsRefused) {
  const auto graph = graph::BuildTrainingGraph({}, {.sequence_length = 16});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto work = WorkToMeasure(job_, *graph);
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  for (MeasuredWorker& worker : file_.workers) {
    for (const program::ProfiledWork::Part& part : work->parts) {
      worker.measurement.profile.seconds[part.signature] = 0.1;
    }
  }
  EXPECT_TRUE(PlanRequestOf(file_, job_, *graph).ok());
  job_.parallel.tensor = 2;
  const auto refused = PlanRequestOf(file_, job_, *graph);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(),
              HasSubstr("worker a was measured with another parallel.tensor or plan"));
}

TEST_F(ProfileFileTest, WhatIsNoSuchFileIsRefused) {
  const auto refusal = [](const std::string& text) {
    const auto read = ProfileFileFromJson(text);
    return read.ok() ? "" : read.status().message();
  };
  EXPECT_THAT(refusal(""), HasSubstr("no profile file"));
  EXPECT_THAT(refusal("{}"), HasSubstr("profile_file"));
  EXPECT_THAT(refusal(R"({"profile_file": 1, "workers": []})"), HasSubstr("profile_file is 1"));
  EXPECT_THAT(refusal(R"({"profile_file": 3, "workers": [{"worker": "a"}]})"), HasSubstr("host"));
  EXPECT_THAT(refusal(R"({"profile_file": 3, "workers": []})"), HasSubstr("links"));
  EXPECT_THAT(
      refusal(R"({"profile_file": 3, "workers": [], "links": {"places": [0], "pairs": []}})"),
      HasSubstr("1 places for 0 workers"));
  EXPECT_THAT(refusal(R"({"profile_file": 3, "workers": )" + std::string(3'000'000, '[')),
              HasSubstr("no profile file"));
  file_.workers[0].slowdown = 0;
  EXPECT_THAT(refusal(ProfileFileToJson(file_)), HasSubstr("worker a: slowdown is 0"));
  file_.workers[0].slowdown = 1;
  std::string text = ProfileFileToJson(file_);
  const std::string rate = "\"flops_per_second\": ";
  text.insert(text.find(rate) + rate.size(), "-");
  EXPECT_THAT(refusal(text), HasSubstr("worker a"));
}

}  // namespace
}  // namespace heddle::elastic
