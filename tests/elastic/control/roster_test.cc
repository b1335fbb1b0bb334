// Who may come, who may come again, and whose time is over.
#include "elastic/control/membership/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = Roster::Answer::Kind;

class RosterTest : public testing::Test {
 protected:
  static wire::Hello HelloOf(const std::string& name, char incarnation) {
    wire::Hello hello;
    hello.set_name(name);
    hello.set_incarnation(std::string(16, incarnation));
    hello.set_protocol_version(kProtocolVersion);
    (*hello.mutable_arithmetic())["processor"] = "EPYC";
    hello.set_host("host-" + name);
    return hello;
  }
  Kind Judge(const wire::Hello& hello) {
    return roster_.Judge(hello, false, now_, policy_.lease).kind;
  }

  JobPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  Roster roster_;
  Outbox out_{[] { return DurableState(); }};
};

// Before its first generation, too: a process that was given up may hold anything.
TEST_F(RosterTest, AnIncarnationThatWasGivenUpDoesNotComeBackEvenWithoutAGeneration) {
  const wire::Hello hello = HelloOf("a", 'A');
  EXPECT_EQ(Judge(hello), Kind::kJoin);
  roster_.Join(1, hello, now_);
  roster_.Dismiss("a", "no heartbeat for 3.0 s", true, out_);
  const Roster::Answer answer = roster_.Judge(hello, false, now_, policy_.lease);
  EXPECT_EQ(answer.kind, Kind::kRefuse);
  EXPECT_TRUE(answer.permanent);
  EXPECT_THAT(answer.reason, HasSubstr("given up (no heartbeat for 3.0 s)"));
  EXPECT_EQ(Judge(HelloOf("another-name", 'A')), Kind::kRefuse);
  EXPECT_EQ(Judge(HelloOf("a", 'B')), Kind::kJoin) << "its successor may";
}

TEST_F(RosterTest, AWorkerThatLeftBeforeAJobMayComeAgain) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Dismiss("a", "", false, out_);
  EXPECT_EQ(Judge(HelloOf("a", 'A')), Kind::kJoin);
}

TEST_F(RosterTest, AnUnknownWorkerOfAnyGenerationIsStale) {
  wire::Hello hello = HelloOf("a", 'A');
  hello.set_generation(1);
  EXPECT_EQ(Judge(hello), Kind::kRefuse);
  hello.set_generation(0);
  hello.set_staged_generation(1);
  EXPECT_EQ(Judge(hello), Kind::kRefuse);
}

TEST_F(RosterTest, AProcessTakesTheNameOfOneThatIsNotHeardAnyMore) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  const Roster::Answer early = roster_.Judge(HelloOf("a", 'B'), false, now_, policy_.lease);
  EXPECT_EQ(early.kind, Kind::kRefuse);
  EXPECT_FALSE(early.permanent);
  now_ += policy_.lease;
  EXPECT_EQ(Judge(HelloOf("a", 'B')), Kind::kReplace);
  now_ -= policy_.lease;
  roster_.Disconnect(1, now_);
  EXPECT_EQ(Judge(HelloOf("a", 'B')), Kind::kReplace);
  EXPECT_EQ(Judge(HelloOf("a", 'A')), Kind::kReturn);
}

TEST_F(RosterTest, NamesThatWereNotAskedForAreNumbered) {
  EXPECT_EQ(roster_.Join(1, HelloOf("", 'A'), now_), "worker-1");
  EXPECT_EQ(roster_.Join(2, HelloOf("worker-2", 'B'), now_), "worker-2");
  EXPECT_EQ(roster_.Join(3, HelloOf("", 'C'), now_), "worker-3");
  roster_.Dismiss("worker-3", "lost", true, out_);
  EXPECT_EQ(roster_.Join(4, HelloOf("", 'D'), now_), "worker-4") << "never again";
}

TEST_F(RosterTest, AnOldStreamSaysNothingForAWorkerThatReturned) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Return(2, HelloOf("a", 'A'), now_, out_);
  EXPECT_EQ(roster_.NoteHeard(1, now_), nullptr);
  EXPECT_EQ(roster_.Disconnect(1, now_), "");
  ASSERT_NE(roster_.NoteHeard(2, now_), nullptr);
  EXPECT_TRUE(roster_.Check().ok());
}

TEST_F(RosterTest, OneOfAHostIsProfiledAtATimeAndInTime) {
  Job job;
  for (const char* name : {"a", "b", "c"}) {
    wire::Hello hello = HelloOf(name, *name);
    hello.set_host(*name == 'c' ? "busy" : "one");
    roster_.Join(*name, hello, now_);
    roster_.Welcome(name, false, job, 0, out_);
  }
  roster_.ScheduleProfiles({"busy"}, std::chrono::seconds(1), now_, out_);
  roster_.ScheduleProfiles({"busy"}, std::chrono::seconds(1), now_, out_);
  EXPECT_TRUE(roster_.at("a").profiling_until);
  EXPECT_FALSE(roster_.at("b").profiling_until);
  EXPECT_FALSE(roster_.at("c").profiling_until);
  EXPECT_EQ(roster_.at("a").profiling_until, now_ + std::chrono::seconds(1));
  roster_.TakeProfile("a", "{}");
  EXPECT_FALSE(roster_.at("a").profiling_until);
  EXPECT_THAT(CandidatesOf(roster_), testing::ElementsAre("a"));
}

TEST_F(RosterTest, TimeInWhichAWorkerIsNotHeardIsNoneOfItsProfile) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Welcome("a", false, Job(), 0, out_);
  roster_.ScheduleProfiles({}, std::chrono::seconds(10), now_, out_);
  const Time due = now_ + std::chrono::seconds(10);
  now_ += std::chrono::seconds(1);
  roster_.NoteHeard(1, now_);
  EXPECT_EQ(roster_.at("a").profiling_until, due) << "no gap";
  now_ += std::chrono::seconds(20);
  roster_.NoteHeard(1, now_);
  EXPECT_EQ(roster_.at("a").profiling_until, due + std::chrono::seconds(20));
  now_ += std::chrono::seconds(5);
  roster_.Return(2, HelloOf("a", 'A'), now_, out_);
  EXPECT_EQ(roster_.at("a").profiling_until, due + std::chrono::seconds(25));
}

TEST_F(RosterTest, AnAbsentWorkerKeepsNobodyFromItsProfile) {
  for (const char* name : {"a", "b"}) {
    wire::Hello hello = HelloOf(name, *name);
    hello.set_host("one");
    roster_.Join(*name, hello, now_);
    roster_.Welcome(name, false, Job(), 0, out_);
  }
  roster_.ScheduleProfiles({}, std::chrono::seconds(10), now_, out_);
  ASSERT_TRUE(roster_.at("a").profiling_until);
  roster_.SetAbsent({"a"});
  roster_.ScheduleProfiles({}, std::chrono::seconds(10), now_, out_);
  EXPECT_FALSE(roster_.at("a").profiling_until);
  EXPECT_TRUE(roster_.at("b").profiling_until);
  roster_.TakeProfile("b", "{}");
  roster_.NoteHeard('a', now_);
  EXPECT_FALSE(roster_.at("a").absent);
  roster_.ScheduleProfiles({}, std::chrono::seconds(10), now_, out_);
  EXPECT_TRUE(roster_.at("a").profiling_until) << "it is asked again";
}

TEST_F(RosterTest, NamesHoldLettersDigitsAndThreeSigns) {
  for (int c = 1; c < 256; ++c) {
    const auto sign = static_cast<char>(c);
    const bool sound =
        std::string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
            .find(sign) != std::string::npos;
    wire::Hello hello = HelloOf("a", 'A');
    hello.set_name(std::string("x") + sign);
    EXPECT_EQ(Judge(hello), sound ? Kind::kJoin : Kind::kRefuse) << c;
    hello.set_name("x");
    hello.set_failure_domain(std::string("x") + sign);
    EXPECT_EQ(Judge(hello), sound ? Kind::kJoin : Kind::kRefuse) << c;
  }
}

TEST_F(RosterTest, NamesAreNoLongerThanAllowed) {
  using Set = void (*)(wire::Hello&, std::string);
  const std::pair<size_t, Set> longest[] = {
      {64, [](wire::Hello& hello, std::string text) { hello.set_name(std::move(text)); }},
      {64, [](wire::Hello& hello, std::string text) { hello.set_failure_domain(std::move(text)); }},
      {255, [](wire::Hello& hello, std::string text) { hello.set_host(std::move(text)); }},
      {255, [](wire::Hello& hello, std::string text) { hello.set_network(std::move(text)); }}};
  for (const auto& [most, set] : longest) {
    wire::Hello hello = HelloOf("a", 'A');
    set(hello, std::string(most, 'x'));
    EXPECT_EQ(Judge(hello), Kind::kJoin) << most;
    set(hello, std::string(most + 1, 'x'));
    EXPECT_EQ(Judge(hello), Kind::kRefuse) << most;
  }
}

TEST_F(RosterTest, AnIncarnationIsOfSixteenBytesAndTheProtocolTheCoordinators) {
  wire::Hello hello = HelloOf("a", 'A');
  for (const size_t bytes : {0U, 15U, 17U}) {
    hello.set_incarnation(std::string(bytes, 'A'));
    EXPECT_EQ(Judge(hello), Kind::kRefuse) << bytes;
  }
  for (const int version : {kProtocolVersion - 1, kProtocolVersion + 1}) {
    hello = HelloOf("a", 'A');
    hello.set_protocol_version(version);
    EXPECT_THAT(roster_.Judge(hello, false, now_, policy_.lease).reason,
                HasSubstr("speaks version " + std::to_string(version)));
  }
}

TEST_F(RosterTest, AWorkerSaysWhatItComputesOnInLinesThatCanBePrinted) {
  wire::Hello hello = HelloOf("a", 'A');
  auto& arithmetic = *hello.mutable_arithmetic();
  for (const std::string& value :
       {std::string(5000, 'x'), std::string("two\nlines"), std::string("\xc3\xa9")}) {
    arithmetic["processor"] = value;
    EXPECT_THAT(roster_.Judge(hello, false, now_, policy_.lease).reason,
                HasSubstr("does not say what it computes on"))
        << value;
  }
  arithmetic.clear();
  EXPECT_EQ(Judge(hello), Kind::kRefuse);
  arithmetic["processor"] = "AMD EPYC (tm) 9B14";
  EXPECT_EQ(Judge(hello), Kind::kJoin);
  roster_.Join(1, hello, now_);
  EXPECT_EQ(roster_.at("a").arithmetic, (Arithmetic{{"processor", "AMD EPYC (tm) 9B14"}}));
}

TEST_F(RosterTest, NobodyComesToAJobThatHasEnded) {
  const Roster::Answer answer = roster_.Judge(HelloOf("a", 'A'), true, now_, policy_.lease);
  EXPECT_EQ(answer.kind, Kind::kRefuse);
  EXPECT_EQ(answer.reason, "the job has ended");
}

TEST_F(RosterTest, WhoReturnsIsAsItSaysAndItsOldStreamIsClosed) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.TakeList(true);
  wire::Hello hello = HelloOf("a", 'A');
  hello.set_pid(5);
  hello.set_data_address("data");
  hello.set_standing(wire::STANDING_HALTED);
  hello.set_standing_generation(4);
  hello.set_applied_step(9);
  now_ += std::chrono::seconds(1);
  roster_.Return(2, hello, now_, out_);
  const Worker& worker = roster_.at("a");
  EXPECT_EQ(worker.pid, 5);
  EXPECT_EQ(worker.data_address, "data");
  EXPECT_EQ(worker.standing, wire::STANDING_HALTED);
  EXPECT_EQ(worker.standing_generation, 4);
  EXPECT_EQ(worker.applied_step, 9);
  EXPECT_EQ(worker.last_heard_at, now_);
  EXPECT_TRUE(roster_.TakeList(true)) << "its address may be another one";
  const auto actions = out_.Take();
  ASSERT_THAT(actions, SizeIs(1));
  EXPECT_EQ(std::get<Close>(actions[0]).connection, 1U);
  roster_.Return(2, hello, now_, out_);
  EXPECT_THAT(out_.Take(), IsEmpty()) << "the same stream";
  roster_.Disconnect(2, now_);
  roster_.Return(3, hello, now_, out_);
  EXPECT_FALSE(roster_.at("a").broken_at);
  EXPECT_THAT(out_.Take(), IsEmpty()) << "nothing is left to be closed";
}

TEST_F(RosterTest, ItsOwnLimitsAndDomainComeBeforeTheJobFiles) {
  Job job;
  job.emulation["a"].set_speed(0.5);
  job.failure_domains["a"] = "rack";
  using Set = void (*)(wire::Emulation&);
  for (const Set set : {Set([](wire::Emulation& own) { own.set_speed(2); }),
                        Set([](wire::Emulation& own) { own.set_memory_bytes(3); }),
                        Set([](wire::Emulation& own) { own.set_link_bytes_per_second(4); })}) {
    roster_ = Roster();
    wire::Hello hello = HelloOf("a", 'A');
    set(*hello.mutable_emulation());
    hello.set_failure_domain("own");
    roster_.Join(1, hello, now_);
    roster_.Welcome("a", false, job, 0, out_);
    EXPECT_NE(roster_.at("a").emulation.speed(), 0.5);
    EXPECT_EQ(roster_.at("a").failure_domain, "own");
  }
  roster_ = Roster();
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Welcome("a", false, job, 0, out_);
  EXPECT_EQ(roster_.at("a").emulation.speed(), 0.5);
  EXPECT_EQ(roster_.at("a").failure_domain, "rack");
}

TEST_F(RosterTest, TheListHoldsThoseThatWereWelcomedAndIsAnnouncedOnce) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Join(2, HelloOf("b", 'B'), now_);
  EXPECT_THAT(roster_.TakeList(true)->workers, SizeIs(2)) << "without a job there is no welcome";
  EXPECT_FALSE(roster_.TakeList(true));
  roster_.Welcome("a", false, Job(), 0, out_);
  const auto list = roster_.TakeList(false);
  ASSERT_TRUE(list);
  ASSERT_THAT(list->workers, SizeIs(1));
  EXPECT_EQ(list->workers[0].name, "a");
  roster_.Dismiss("a", "lost", true, out_);
  EXPECT_TRUE(roster_.TakeList(false));
}

TEST_F(RosterTest, AProfileIsAskedForWhereItIsMissingAndKeptAsItCameFirst) {
  for (const char* name : {"a", "b", "c"}) {
    roster_.Join(static_cast<ConnectionId>(*name), HelloOf(name, *name), now_);
    roster_.Welcome(name, false, Job(), 0, out_);
  }
  roster_.Disconnect('b', now_);
  roster_.TakeProfile("c", "first");
  roster_.TakeProfile("c", "second");
  EXPECT_EQ(roster_.at("c").profile_json, "first");
  roster_.ScheduleProfiles({}, std::chrono::seconds(1), now_, out_);
  EXPECT_THAT(ProfilingHosts(roster_), testing::ElementsAre("host-a"));
  now_ += std::chrono::seconds(1) - Duration(1);
  for (const char* name : {"a", "c"}) {
    roster_.NoteHeard(static_cast<ConnectionId>(*name), now_);
  }
  roster_.Return('b', HelloOf("b", 'b'), now_, out_);
}

TEST_F(RosterTest, WhoIsKnownFromThePredecessorIsNoCandidateBeforeItComes) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.TakeProfile("a", "profile");
  DurableState durable;
  roster_.Store(durable);
  EXPECT_EQ(durable.workers.at("a"), (DurableWorker{.incarnation = std::string(16, 'A'),
                                                    .host = "host-a",
                                                    .profile_json = "profile",
                                                    .failure_domain = "",
                                                    .arithmetic = {{"processor", "EPYC"}}}));
  Roster next;
  durable.next_worker_number = 7;
  durable.workers["a"].failure_domain = "rack";
  next.Restore(durable, now_);
  EXPECT_EQ(next.at("a").profile_json, "profile");
  EXPECT_EQ(next.at("a").failure_domain, "rack");
  EXPECT_EQ(next.at("a").host, "host-a");
  EXPECT_EQ(next.at("a").last_heard_at, now_);
  EXPECT_THAT(CandidatesOf(next), IsEmpty());
  EXPECT_EQ(next.Judge(HelloOf("a", 'B'), false, now_, policy_.lease).kind, Kind::kReplace);
  EXPECT_EQ(next.Judge(HelloOf("a", 'A'), false, now_, policy_.lease).kind, Kind::kReturn);
  EXPECT_EQ(next.Join(1, HelloOf("", 'C'), now_), "worker-7");
}

TEST_F(RosterTest, DrainsAreRefusedOneByOneWithTheReason) {
  for (const char* name : {"a", "b", "c"}) {
    roster_.Join(static_cast<ConnectionId>(*name), HelloOf(name, *name), now_);
  }
  roster_.Drain("a", "SIGTERM");
  roster_.Drain("c", "drained");
  EXPECT_TRUE(roster_.at("a").draining);
  EXPECT_EQ(roster_.at("a").leave_reason, "SIGTERM");
  RefuseDrains(roster_, "nobody else", out_);
  const auto actions = out_.Take();
  ASSERT_THAT(actions, SizeIs(3));
  EXPECT_TRUE(std::holds_alternative<Persist>(actions[2]));
  EXPECT_EQ(
      FormatLogEvent(std::get<WriteLog>(actions[1]).event, 0),
      R"({"time": 0.000000, "event": "drain_refused", "worker": "c", "reason": "nobody else"})");
  EXPECT_FALSE(roster_.at("a").draining || roster_.at("c").draining);
}

TEST_F(RosterTest, ThoseThatLeaveCarryTheJobOnlyWhereOthersAreTooFew) {
  for (const char* name : {"a", "b", "c"}) {
    roster_.Join(static_cast<ConnectionId>(*name), HelloOf(name, *name), now_);
    roster_.Welcome(name, false, Job(), 0, out_);
  }
  roster_.TakeProfile("a", "{}");
  roster_.TakeProfile("b", "{}");
  EXPECT_FALSE(AllLeave(roster_));
  EXPECT_FALSE(AnyNoticed(roster_));
  roster_.Drain("a", "drained");
  EXPECT_FALSE(AnyNoticed(roster_));
  EXPECT_FALSE(AllLeave(roster_));
  EXPECT_EQ(CarriersOf(roster_, 1), std::set<std::string>({"b"}));
  EXPECT_EQ(CarriersOf(roster_, 2), std::set<std::string>({"a", "b"}));
  roster_.Drain("b", "SIGTERM", /*noticed=*/true);
  roster_.Drain("b", "drained");
  EXPECT_TRUE(AnyNoticed(roster_)) << "it stays so";
  EXPECT_TRUE(AllLeave(roster_)) << "c is not measured yet";
  EXPECT_EQ(CarriersOf(roster_, 0), std::set<std::string>({"a", "b"}));
}

TEST_F(RosterTest, AGenerationSetsEverybodysStanding) {
  roster_.Join(1, HelloOf("a", 'A'), now_);
  roster_.Join(2, HelloOf("b", 'B'), now_);
  roster_.SetStanding("b", wire::STANDING_STOPPED);
  roster_.BeginGeneration(3, {{"a", "A"}});
  EXPECT_EQ(roster_.at("a").standing, wire::STANDING_TRAINING);
  EXPECT_EQ(roster_.at("b").standing, wire::STANDING_IDLE);
  EXPECT_EQ(roster_.at("b").standing_generation, 3);
}

}  // namespace
}  // namespace heddle::elastic
