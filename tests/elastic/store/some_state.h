/// \file
/// A DurableState with a value in every field, and the comparison of two states field by field.
#pragma once

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/durable.h"

namespace heddle::elastic {

inline DurableState SomeState() {
  DurableState state;
  state.job_id = "abc";
  state.job_yaml = "steps: 3\nname: \"quoted\"\n";
  state.secret = std::string("\0\x01\xff", 3);
  state.output_folder = "/tmp/x";
  state.data = UINT64_MAX - 5;
  state.generation_counter = 7;
  state.held.emplace();
  state.held->number = 6;
  state.held->plan.plan_json = "{}";
  state.held->plan.members = {"a", "b"};
  state.held->plan.program_hashes = {1, UINT64_MAX};
  state.held->plan.parameters = {{0, 1}, {2}};
  state.held->plan.parameter_count = 3;
  state.held->plan.predicted_step_seconds = 0.125;
  state.held->members = {{"a", std::string(16, '\x80')}, {"b", std::string(16, 'b')}};
  state.snapshots[4] = {.plan_json = "{\"g\": 4}", .owners = {0, 2}, .last_step = 30};
  state.snapshots[6] = {.plan_json = "{}", .owners = {0, 1}};
  state.refused = {{.holder = "a", .generation = 6},
                   {.holder = "b", .generation = 4, .step = 20, .receiver = "a"}};
  state.workers["a"] = {std::string(16, '\x80'), "host", "{\"p\": 1}", "rack-1"};
  state.workers["a"].arithmetic = {{"blas", "SkylakeX"}, {"processor", "EPYC"}};
  state.workers["b"] = {.incarnation = std::string(16, 'b'),
                        .host = "host",
                        .profile_json = "{}",
                        .failure_domain = "",
                        .leaves = "drained",
                        .noticed = true,
                        .notice = 3,
                        .withdrawn = 2};
  state.lineage = {
      {.after_step = -1, .provenance = {.arithmetic = {{"blas", "SkylakeX"}}}},
      {.after_step = 12,
       .provenance = {.guarantee = Guarantee::kPerPlan, .reason = "b computes unlike a"}}};
  state.releases = {{std::string(16, '\x81'), "drained", false},
                    {std::string(16, 'c'), "SIGTERM", true}};
  state.known_step = 41;
  state.agreed_step = 33;
  state.restarts = 3;
  state.checkpoints = {20, 40};
  state.given_up_checkpoints = {60, 80};
  state.admission.grants["0f"] = {.names = "gpu-*", .ends = 1795600000.25, .uses_left = 3};
  state.admission.grants["f0"] = {.names = "a", .ends = 1795600001, .uses_left = 0};
  state.admission.revoked["b"] = 1795599999.5;
  return state;
}

inline void ExpectSame(const DurableState& again, const DurableState& state) {
  EXPECT_EQ(again.job_id, state.job_id);
  EXPECT_TRUE(again.job_yaml == state.job_yaml) << "may be long";
  EXPECT_EQ(again.secret, state.secret);
  EXPECT_EQ(again.output_folder, state.output_folder);
  EXPECT_EQ(again.data, state.data);
  EXPECT_EQ(again.generation_counter, state.generation_counter);
  EXPECT_EQ(again.restarts, state.restarts);
  ASSERT_EQ(again.held.has_value(), state.held.has_value());
  EXPECT_EQ(again.held->number, state.held->number);
  EXPECT_EQ(again.held->plan.members, state.held->plan.members);
  EXPECT_EQ(again.held->plan.program_hashes, state.held->plan.program_hashes);
  EXPECT_EQ(again.held->plan.parameters, state.held->plan.parameters);
  EXPECT_EQ(again.held->plan.parameter_count, state.held->plan.parameter_count);
  EXPECT_EQ(again.held->plan.predicted_step_seconds, state.held->plan.predicted_step_seconds);
  EXPECT_EQ(again.held->members, state.held->members);
  EXPECT_EQ(again.workers, state.workers);
  EXPECT_EQ(again.releases, state.releases);
  EXPECT_EQ(again.snapshots, state.snapshots);
  EXPECT_EQ(again.refused, state.refused);
  EXPECT_EQ(again.lineage, state.lineage);
  EXPECT_EQ(again.known_step, state.known_step);
  EXPECT_EQ(again.agreed_step, state.agreed_step);
  EXPECT_EQ(again.checkpoints, state.checkpoints);
  EXPECT_EQ(again.given_up_checkpoints, state.given_up_checkpoints);
  EXPECT_EQ(again.finished, state.finished);
  EXPECT_EQ(again.admission, state.admission);
}

}  // namespace heddle::elastic
