/// \file
/// The fixture of the coordinator's transitions alone, with the components that they use.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A test of the transitions. Workers are named; the first two have joined.
class TransitionsTest : public testing::Test {
 protected:
  TransitionsTest() {
    job_.policy.total_steps = 1000;
    job_.policy.initial_workers = 2;
    formation_.Begin(now_);
    Add("a");
    Add("b");
  }
  void Add(const std::string& name) {
    wire::Hello hello;
    hello.set_name(name);
    hello.set_incarnation(std::string(16, name.back()));
    roster_.Join(next_++, hello, now_);
    roster_.Welcome(name, false, job_, 0, out_);
    roster_.TakeProfile(name, "{}");
  }
  TransitionContext MakeContext() {
    return {job_,        roster_,    generations_, blame_,   links_,      steps_,
            saves_,      sources_,   agreement_,   drift_,   link_drift_, formation_,
            recoveries_, decisions_, outcomes_,    lineage_, now_,        out_};
  }
  // Calls a method of the transitions with the context, and checks the invariants. Forgets the
  // actions of earlier calls.
  template <typename... Args, typename... Given>
  Effects Do(Effects (Transitions::*method)(Args...), Given&&... given) {
    TransitionContext context = MakeContext();
    out_.Take();
    Effects effects = (transitions_.*method)(std::forward<Given>(given)..., context);
    EXPECT_TRUE(transitions_.Check(roster_, generations_, sources_).ok());
    return effects;
  }
  Effects Planned(const std::vector<std::string>& members, double seconds = 0.5) {
    PlanOutcome outcome;
    outcome.request_id = transitions_.current()->In<Planning>()->request;
    outcome.members = members;
    for (const std::string& name : members) {
      outcome.program_hashes.push_back(static_cast<uint64_t>(name.back()));
      outcome.parameters.push_back({0});
    }
    outcome.parameter_count = 1;
    outcome.predicted_step_seconds = seconds;
    outcome.current_step_seconds = 1;
    return Do(&Transitions::OnPlanned, outcome);
  }
  Effects Prepared(const std::string& name) {
    wire::Prepared message;
    message.set_generation(transitions_.current()->generation);
    message.set_program_hash(static_cast<uint64_t>(name.back()));
    return Do(&Transitions::OnPrepared, name, message);
  }
  Effects Ready(const std::string& name) {
    wire::Ready message;
    message.set_generation(transitions_.current()->generation);
    message.mutable_certificate()->set_step(transitions_.current()->next()->origin.step);
    message.mutable_certificate()->add_parameters(0);
    message.mutable_certificate()->add_digests(1);
    return Do(&Transitions::OnReady, name, message);
  }
  Effects Lose(const std::string& name) {
    generations_.RemoveMember(name);
    roster_.Dismiss(name, "lost", true, out_);
    transitions_.Forget(name);
    return Do(&Transitions::OnLost, name);
  }
  void FormTwo() {
    Do(&Transitions::Form);
    Planned({"a", "b"});
    Prepared("a");
    Prepared("b");
    Ready("a");
    Ready("b");
    ASSERT_TRUE(generations_.held());
  }
  void JoinAndPlan() {
    Add("c");
    Do(&Transitions::Consider);
    ASSERT_TRUE(Stage<Planning>());
    Planned({"a", "b", "c"});
    ASSERT_TRUE(Stage<Preparing>());
  }
  template <typename T>
  bool Stage() const {
    return transitions_.current() && transitions_.current()->In<T>() != nullptr;
  }
  std::vector<std::string> Late() {
    now_ = *transitions_.NextDeadline(job_.policy, roster_);
    std::vector<std::string> names;
    for (const Loss& loss : Do(&Transitions::CheckDeadline).losses) {
      names.push_back(loss.worker);
    }
    return names;
  }

  Job job_;
  Time now_{std::chrono::seconds(100)};
  ConnectionId next_ = 1;
  Roster roster_;
  Generations generations_;
  Blame blame_;
  LinkSurvey links_;
  Steps steps_;
  Saves saves_;
  StateSources sources_;
  Agreement agreement_;
  Drift drift_;
  LinkDrift link_drift_;
  Formation formation_;
  Recoveries recoveries_;
  Decisions decisions_;
  Outcomes outcomes_;
  Lineage lineage_;
  Transitions transitions_;
  Outbox out_{[] { return DurableState(); }};
};

}  // namespace heddle::elastic
