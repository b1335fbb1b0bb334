// All that the coordinator decides in a few stories, word by word: every field of every message,
// record and durable fact, and their order.
#include "tests/elastic/control/transcript_fixture.h"

namespace heddle::elastic {
namespace {

TEST_F(TranscriptTest, AJobForms) {
  Form();
  EXPECT_EQ(Said(), R"(list a(97 metrics-a host-a)
store job yaml secret /out counter 0 step 0 life 0 next 1 checkpoints [] a(A host-a  )
log "job_started", "job": "job", "steps": 4, "workers": 2}
a < {"welcome":{"name":"a","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{},"heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,"noticeSeconds":120}}
log "worker_joined", "worker": "a", "host": "host-a", "pid": 97}
a < {"profile":{}}
list a(97 metrics-a host-a)
store job yaml secret /out counter 0 step 0 life 0 next 1 checkpoints [] a(A host-a  ) b(B host-b  )
b < {"welcome":{"name":"b","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{"speed":0.5},"heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,"noticeSeconds":120}}
log "worker_joined", "worker": "b", "host": "host-b", "pid": 98}
b < {"profile":{}}
list a(97 metrics-a host-a) b(98 metrics-b host-b)
plan 1 of 1: a(host-a "a" 1) b(host-b "b" 1) links {"places":[0,1]} now ''
store job yaml secret /out counter 1 step 0 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b)
a < {"prepare":{"generation":"1","planJson":"\"plan 1\"","members":[{"name":"a","address":"data-a"},
    {"name":"b","address":"data-b"}],"links":{"places":[0,1]},"holders":[{"ranks":[1]},{"ranks":[0]}]}}
b < {"prepare":{"generation":"1","planJson":"\"plan 1\"","members":[{"name":"a","address":"data-a"},
    {"name":"b","address":"data-b"}],"links":{"places":[0,1]},"holders":[{"ranks":[1]},{"ranks":[0]}]}}
a < {"start":{"generation":"1","initial":true,"moveGeneration":"1","moveMembers":[{"name":"a",
    "address":"data-a"},{"name":"b","address":"data-b"}]}}
b < {"start":{"generation":"1","initial":true,"moveGeneration":"1","moveMembers":[{"name":"a",
    "address":"data-a"},{"name":"b","address":"data-b"}]}}
log "decision", "generation": 1, "follows": 0, "cause": "form", "evidence": [{"what": "2 of 2 workers came"}],
    "alternatives": [{"what": "initial", "step": 0, "predicted_seconds": 0.5}, {"what": "live", "note": "the
    workers' tensors are not all there"}, {"what": "replicas", "note": "no snapshot in memory is whole"},
    {"what": "checkpoint", "note": "there is none"}], "choice": "initial", "reason": "nothing else has the
    state", "scale": null, "predicted_seconds": 0.5, "seconds": null}
store job yaml secret /out counter 1 step 0 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1]
log "plan", "generation": 1, "predicted_step_seconds": 0.25, "plan": "plan 1"}
log "guarantee", "generation": 1, "guarantee": "plan-invariant", "reason": ""}
a < {"go":{"generation":"1"}}
b < {"go":{"generation":"1"}})");
  EXPECT_EQ(
      Shown(),
      R"({"phase":"training","jobId":"job","generation":"1","step":"0","totalSteps":"4","predictedStepSeconds":0.25,
    "workers":[{"name":"a","host":"host-a","pid":"97","standing":"training","metricsAddress":"metrics-a",
    "slowdown":1,"arithmetic":{"processor":"EPYC"}},{"name":"b","host":"host-b","pid":"98",
    "standing":"training","metricsAddress":"metrics-b","slowdown":1,"failureDomain":"rack-b",
    "arithmetic":{"processor":"EPYC"}}],"planJson":"\"plan 1\"","outputFolder":"/out",
    "guarantee":"plan-invariant"})");
}

TEST_F(TranscriptTest, StepsCheckpointsAndTheEnd) {
  Form();
  Said();
  Step("a", 1);
  Step("a", 2);
  Validated("a", 2);
  Saved("a", 2, 0.25);
  Saved("b", 2, 0.5);
  Committed(2);
  From("b", [](wire::FromWorker& message) {
    message.mutable_heartbeat()->set_applied_step(2);
    message.mutable_heartbeat()->set_standing(wire::STANDING_TRAINING);
  });
  EXPECT_EQ(
      Said(),
      R"(log "step", "step": 1, "generation": 1, "loss": 7, "tokens": 1024, "seconds": 0.5, "first_sample": 16,
    "samples": 16, "gradient_norm": 0.125}
log "step", "step": 2, "generation": 1, "loss": 6, "tokens": 1024, "seconds": 0.5, "first_sample": 32,
    "samples": 16, "gradient_norm": 0.125}
log "validation", "step": 2, "loss": 3.5}
store job yaml secret /out counter 1 step 2 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1]
commit 2 of 1 [part-a part-b] "plan 1" 3.5
store job yaml secret /out counter 1 step 2 life 0 next 1 checkpoints [2] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1]
log "checkpoint", "step": 2, "bytes": 100, "raw_bytes": 200, "stall_seconds": 0.5, "seconds": 0.75}
b < {"alive":{"knownStep":"2"}})");
  EXPECT_EQ(
      Shown(),
      R"({"phase":"training","jobId":"job","generation":"1","step":"2","totalSteps":"4","loss":6,"tokensPerSecond":2048,
    "predictedStepSeconds":0.25,"stepSeconds":0.5,"workers":[{"name":"a","host":"host-a","pid":"97",
    "standing":"training","metricsAddress":"metrics-a","slowdown":1,"arithmetic":{"processor":"EPYC"}},
    {"name":"b","host":"host-b","pid":"98","standing":"training","appliedStep":"2",
    "metricsAddress":"metrics-b","slowdown":1,"failureDomain":"rack-b","arithmetic":{"processor":"EPYC"}}],
    "planJson":"\"plan 1\"","checkpointSteps":["2"],"validationLoss":3.5,"secondsLeft":1,"outputFolder":"/out",
    "guarantee":"plan-invariant"})");
  Step("a", 3);
  Step("a", 4);
  Saved("a", 4, 0);
  Saved("b", 4, 0);
  Finished("a", 4);
  Finished("b", 4);
  Committed(4);
  Validated("b", 4);
  EXPECT_EQ(
      Said(),
      R"(log "step", "step": 3, "generation": 1, "loss": 5, "tokens": 1024, "seconds": 0.5, "first_sample": 48,
    "samples": 16, "gradient_norm": 0.125}
log "step", "step": 4, "generation": 1, "loss": 4, "tokens": 1024, "seconds": 0.5, "first_sample": 64,
    "samples": 16, "gradient_norm": 0.125}
store job yaml secret /out counter 1 step 4 life 0 next 1 checkpoints [2] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1]
commit 4 of 1 [part-a part-b] "plan 1" -1
store job yaml secret /out counter 1 step 4 life 0 next 1 checkpoints [2 4] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1]
log "checkpoint", "step": 4, "bytes": 100, "raw_bytes": 200, "stall_seconds": 0, "seconds": 0.75}
log "job_finished", "step": 4, "loss": 4}
store job yaml secret /out counter 1 step 4 life 0 next 1 checkpoints [2 4] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1] finished
a < {"release":{"reason":"the job is done"}}
b < {"release":{"reason":"the job is done"}}
end true false the job is done)");
  EXPECT_EQ(
      Shown(),
      R"({"phase":"finished","reason":"the job is done","jobId":"job","generation":"1","step":"4","totalSteps":"4",
    "loss":4,"tokensPerSecond":2048,"predictedStepSeconds":0.25,"stepSeconds":0.5,"workers":[{"name":"a",
    "host":"host-a","pid":"97","standing":"finished","metricsAddress":"metrics-a","slowdown":1,
    "arithmetic":{"processor":"EPYC"}},{"name":"b","host":"host-b","pid":"98","standing":"finished",
    "appliedStep":"2","metricsAddress":"metrics-b","slowdown":1,"failureDomain":"rack-b",
    "arithmetic":{"processor":"EPYC"}}],"planJson":"\"plan 1\"","checkpointSteps":["2","4"],
    "validationLoss":3.5,"secondsLeft":0,"outputFolder":"/out","guarantee":"plan-invariant"})");
  // Nothing that is said afterwards changes anything.
  Step("a", 5);
  Saved("a", 6, 0);
  Tell(CancelRequested{"too late"});
  Tell(ProcessExited{"a", 'a', "exit code 0"});
  Tell(Disconnected{connections_.at("b")});
  Hello("c");
  EXPECT_EQ(Said(), R"(close a
list b(98 metrics-b host-b)
list
c < {"refused":{"reason":"the job has ended, the next one is waited for"}}
close c)");
  EXPECT_EQ(coordinator_.NextDeadline(), std::nullopt);
}

TEST_F(TranscriptTest, ALossIsSettledAndTheJobGoesOn) {
  Form();
  Step("a", 1);
  Step("a", 2);
  Saved("a", 2, 0);
  Saved("b", 2, 0);
  Committed(2);
  Step("a", 3);
  Said();
  now_ += std::chrono::seconds(1);
  Tell(ProcessExited{"b", 'b', "killed by SIGKILL"});
  EXPECT_EQ(
      Shown(),
      R"({"phase":"recovering","jobId":"job","generation":"1","step":"3","totalSteps":"4","loss":5,
    "tokensPerSecond":2048,"predictedStepSeconds":0.25,"stepSeconds":0.5,"workers":[{"name":"a",
    "host":"host-a","pid":"97","standing":"training","metricsAddress":"metrics-a","slowdown":1,
    "arithmetic":{"processor":"EPYC"}}],"planJson":"\"plan 1\"","checkpointSteps":["2"],"secondsLeft":0.5,
    "outputFolder":"/out","guarantee":"plan-invariant"})");
  now_ += std::chrono::milliseconds(250);
  From("a", [](wire::FromWorker& message) {
    wire::Halted& halted = *message.mutable_halted();
    halted.set_generation(2);
    halted.set_held_generation(1);
    halted.set_applied_step(3);
    halted.set_norm_step(3);
    wire::Halted::Replicas& replicas = *halted.add_replicas();
    replicas.set_generation(1);
    replicas.set_step(3);
    replicas.add_owners(0);
    replicas.add_owners(1);
    replicas.set_raw_bytes(200);
  });
  Plan();
  Prepared("a");
  Ready("a", 100);
  EXPECT_EQ(Said(), R"(log "worker_lost", "worker": "b", "reason": "killed by SIGKILL"}
gone b 98
b < {"abandon":{"reason":"killed by SIGKILL"}}
close b
store job yaml secret /out counter 3 step 3 life 0 next 1 checkpoints [2] a(A host-a "a" ) held 1 "plan 1":
    a=A snapshots 1 "plan 1" [0 1]
a < {"halt":{"generation":"2","knownStep":"3"}}
list a(97 metrics-a host-a)
log "recovery_source", "chosen": "replicas", "step": 3, "candidates": [{"source": "replicas", "step": 3,
    "predicted_seconds": 4e-07}, {"source": "checkpoint", "step": 2, "predicted_seconds": 0.500001}]}
plan 2 of 3: a(host-a "a" 1) links {"places":[0]} now '"plan 1"'
store job yaml secret /out counter 3 step 3 life 0 next 1 checkpoints [2] a(A host-a "a" ) held 1 "plan 1":
    a=A snapshots 1 "plan 1" [0 1]
a < {"prepare":{"generation":"3","planJson":"\"plan 3\"","members":[{"name":"a","address":"data-a"}],
    "links":{"places":[0]},"holders":[{}]}}
a < {"start":{"generation":"3","appliedStep":"3","moveGeneration":"3","moveMembers":[{"name":"a",
    "address":"data-a"}],"replicas":{"generation":"1","planJson":"\"plan 1\"","holders":[{"worker":"a",
    "owners":[0,1]}]}}}
log "decision", "generation": 3, "follows": 1, "cause": "loss", "evidence": [{"worker": "b", "what": "killed
    by SIGKILL", "silent_seconds": 1}], "alternatives": [{"what": "replicas", "step": 3, "predicted_seconds":
    0.5000004}, {"what": "checkpoint", "step": 2, "predicted_seconds": 1.000001}, {"what": "live", "note":
    "the workers' tensors are not all there"}], "choice": "replicas", "reason": "the quickest of 2, by 0.5 s",
    "scale": null, "predicted_seconds": 0.5000004, "seconds": 0.25}
store job yaml secret /out counter 3 step 3 life 0 next 1 checkpoints [2] a(A host-a "a" ) held 3 "plan 3":
    a=A snapshots 1 "plan 1" [0 1]<=3 snapshots 3 "plan 3" [0]
log "state_moved", "bytes": 201, "sources": {"checkpoint": 100, "memory": 101}, "seconds": 0}
log "plan", "generation": 3, "predicted_step_seconds": 0.25, "plan": "plan 3"}
log "resumed", "seconds": 0.25, "steps_repeated": 0}
log "recovered", "generation": 3, "source": "replicas", "predicted_seconds": 0.5000004, "seconds": 0.25}
a < {"go":{"generation":"3"}})");
}

TEST_F(TranscriptTest, OneComesAndOneLeavesWhileTheyTrain) {
  job_.policy.replicate_every = 0;
  job_.policy.total_steps = 1000000;
  Form();
  Step("a", 1);
  Step("a", 2);
  Said();
  Hello("c");
  Profiled("c");
  Tell(DrainRequested{"host-b"});
  now_ += job_.policy.coalesce;
  Tell(Ticked());
  Plan();
  for (const char* name : {"a", "b", "c"}) {
    Prepared(name);
  }
  EXPECT_EQ(
      Shown(),
      R"({"phase":"changing","jobId":"job","generation":"1","step":"2","totalSteps":"1000000","loss":6,
    "tokensPerSecond":2048,"predictedStepSeconds":0.25,"stepSeconds":0.5,"workers":[{"name":"a",
    "host":"host-a","pid":"97","standing":"training","metricsAddress":"metrics-a","slowdown":1,
    "arithmetic":{"processor":"EPYC"}},{"name":"b","host":"host-b","pid":"98","standing":"draining",
    "metricsAddress":"metrics-b","slowdown":1,"failureDomain":"rack-b","mayStay":true,
    "arithmetic":{"processor":"EPYC"}},{"name":"c","host":"host-c","pid":"99","standing":"standby",
    "metricsAddress":"metrics-c","slowdown":1,"arithmetic":{"processor":"EPYC"}}],"planJson":"\"plan 1\"",
    "secondsLeft":499999,"outputFolder":"/out","guarantee":"plan-invariant"})");
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(2);
    });
  }
  for (const char* name : {"a", "b", "c"}) {
    Ready(name, 10);
  }
  EXPECT_EQ(
      Said(),
      R"(store job yaml secret /out counter 1 step 2 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) c(C host-c  ) held 1 "plan 1": a=A b=B
c < {"welcome":{"name":"c","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{},"knownStep":"2","heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,"noticeSeconds":120}}
log "worker_joined", "worker": "c", "host": "host-c", "pid": 99}
c < {"profile":{}}
list a(97 metrics-a host-a) b(98 metrics-b host-b) c(99 metrics-c host-c)
plan 2 of 3: a(host-a "a" 1 holds) b(host-b "b" 1 holds) c(host-c "c" 1) links {"places":[0,1,2]} now '"plan
    1"' runs
store job yaml secret /out counter 1 step 2 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) c(C host-c "c" ) held 1 "plan 1": a=A b=B
store job yaml secret /out counter 3 step 2 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) c(C host-c "c" ) held 1 "plan 1": a=A b=B
a < {"prepare":{"generation":"3","planJson":"\"plan 3\"","members":[{"name":"a","address":"data-a"},
    {"name":"b","address":"data-b"},{"name":"c","address":"data-c"}],"links":{"places":[0,1,2]}}}
b < {"prepare":{"generation":"3","planJson":"\"plan 3\"","members":[{"name":"a","address":"data-a"},
    {"name":"b","address":"data-b"},{"name":"c","address":"data-c"}],"links":{"places":[0,1,2]}}}
c < {"prepare":{"generation":"3","planJson":"\"plan 3\"","members":[{"name":"a","address":"data-a"},
    {"name":"b","address":"data-b"},{"name":"c","address":"data-c"}],"links":{"places":[0,1,2]}}}
a < {"stop":{"generation":"1"}}
b < {"stop":{"generation":"1"}}
a < {"start":{"generation":"3","appliedStep":"2","held":{"generation":"1","planJson":"\"plan 1\"",
    "workers":["a","b"]},"moveGeneration":"3","moveMembers":[{"name":"a","address":"data-a"},{"name":"b",
    "address":"data-b"},{"name":"c","address":"data-c"}],"save":true,"validate":true}}
b < {"start":{"generation":"3","appliedStep":"2","held":{"generation":"1","planJson":"\"plan 1\"",
    "workers":["a","b"]},"moveGeneration":"3","moveMembers":[{"name":"a","address":"data-a"},{"name":"b",
    "address":"data-b"},{"name":"c","address":"data-c"}],"save":true,"validate":true}}
c < {"start":{"generation":"3","appliedStep":"2","held":{"generation":"1","planJson":"\"plan 1\"",
    "workers":["a","b"]},"moveGeneration":"3","moveMembers":[{"name":"a","address":"data-a"},{"name":"b",
    "address":"data-b"},{"name":"c","address":"data-c"}],"save":true,"validate":true}}
log "decision", "generation": 3, "follows": 1, "cause": "join", "evidence": [{"worker": "c", "what":
    "joined"}], "alternatives": [{"what": "keep", "predicted_seconds": 999998}, {"what": "replan",
    "predicted_seconds": 249999.6}], "choice": "replan", "reason": "7.5e+05 s are saved in the 999998 steps
    that are left, more than 1.5 times the 0.1 s that the change costs; nothing is scaled: 0 steps were
    measured, and 8 are needed", "scale": null, "predicted_seconds": 0.1, "seconds": 0}
store job yaml secret /out counter 3 step 2 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) c(C host-c "c" ) held 3 "plan 3": a=A b=B c=C
log "state_moved", "bytes": 63, "sources": {"checkpoint": 30, "memory": 33}, "seconds": 0}
log "plan", "generation": 3, "predicted_step_seconds": 0.25, "plan": "plan 3"}
a < {"go":{"generation":"3"}}
b < {"go":{"generation":"3"}}
c < {"go":{"generation":"3"}}
plan 3 of 5: a(host-a "a" 1 holds) c(host-c "c" 1 holds) links {"places":[0,1]} now '"plan 3"' runs)");
}

TEST_F(TranscriptTest, LinksAreMeasuredBeforeThePlan) {
  job_.policy.links.transports = {"shm", "tcp", "rdma"};
  Hello("a");
  Hello("b");
  Tell(Submitted{job_});
  Profiled("a");
  Profiled("b");
  for (const char* name : {"a", "b"}) {
    From(name, [&](wire::FromWorker& message) {
      wire::LinksMeasured& measured = *message.mutable_links_measured();
      measured.set_request(8);
      for (const char* transport : {"tcp", "rdma", "shm"}) {
        wire::LinksMeasured::Link& link = *measured.add_links();
        link.set_transport(transport);
        link.set_latency_seconds(name[0] == 'a' ? 0.25 : 0.5);
        link.set_bytes_per_second(name[0] == 'a' ? 1024 : 2048);
      }
      measured.mutable_links(2)->set_error("another host");
    });
  }
  EXPECT_EQ(Said(), R"(list a(97 metrics-a host-a)
list a(97 metrics-a host-a) b(98 metrics-b host-b)
store job yaml secret /out counter 0 step 0 life 0 next 1 checkpoints [] a(A host-a  ) b(B host-b  )
log "job_started", "job": "job", "steps": 4, "workers": 2}
a < {"welcome":{"name":"a","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{},"heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,"noticeSeconds":120}}
log "worker_joined", "worker": "a", "host": "host-a", "pid": 97}
b < {"welcome":{"name":"b","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{"speed":0.5},"heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,"noticeSeconds":120}}
log "worker_joined", "worker": "b", "host": "host-b", "pid": 98}
a < {"profile":{}}
b < {"profile":{}}
list a(97 metrics-a host-a) b(98 metrics-b host-b)
a < {"measureLinks":{"request":"8","members":[{"name":"a","address":"probe-a"},{"name":"b",
    "address":"probe-b"}],"transports":["shm","tcp","rdma"],"seconds":4}}
b < {"measureLinks":{"request":"8","members":[{"name":"a","address":"probe-a"},{"name":"b",
    "address":"probe-b"}],"rank":1,"transports":["shm","tcp","rdma"],"seconds":4}}
log "links_measured", "from": "a", "to": "b", "result": "ok", "transports": {"tcp": {"latency_seconds": 0.375,
    "there": 1024, "back": 2048}, "rdma": {"latency_seconds": 0.375, "there": 1024, "back": 2048}}, "reason":
    ""}
plan 1 of 1: a(host-a "a" 1) b(host-b "b" 1) links {"places":[0,1],"pairs":[{"b":1,"transports":[{"name":"tcp",
    "latencySeconds":0.25,"bytesPerSecond":1024,"backLatencySeconds":0.5,"backBytesPerSecond":2048},
    {"name":"rdma","latencySeconds":0.25,"bytesPerSecond":1024,"backLatencySeconds":0.5,
    "backBytesPerSecond":2048}]}]} now '')");
}

TEST_F(TranscriptTest, LimitsChangeWhileTheJobRuns) {
  Form();
  Said();
  EmulateRequested limits;
  limits.worker = "a";
  limits.emulation.set_speed(0.25);
  limits.emulation.set_memory_bytes(1000);
  limits.emulation.set_link_bytes_per_second(2000);
  limits.set_speed = true;
  Tell(limits);
  limits.set_speed = false;
  limits.set_memory = true;
  Tell(limits);
  limits.set_memory = false;
  limits.set_link = true;
  Tell(limits);
  limits.worker = "nobody";
  Tell(limits);
  EXPECT_EQ(Said(), R"(a < {"emulate":{"speed":0.25}}
a < {"emulate":{"speed":0.25,"memoryBytes":"1000"}}
a < {"emulate":{"speed":0.25,"memoryBytes":"1000","linkBytesPerSecond":2000}})");
}

TEST_F(TranscriptTest, TheUserStopsTheJob) {
  Tell(CancelRequested{"there is none"});
  Form();
  Said();
  Tell(CancelRequested{"stopped by SIGINT"});
  Tell(CancelRequested{"stopped again"});
  EXPECT_EQ(
      Said(),
      R"(store job yaml secret /out counter 1 step 0 life 0 next 1 checkpoints [] a(A host-a "a" ) b(B host-b "b"
    rack-b) held 1 "plan 1": a=A b=B snapshots 1 "plan 1" [0 1] failed: stopped by SIGINT
log "job_failed", "reason": "stopped by SIGINT"}
a < {"abandon":{"reason":"stopped by SIGINT"}}
b < {"abandon":{"reason":"stopped by SIGINT"}}
end false false stopped by SIGINT)");
}

TEST_F(TranscriptTest, ARestartTellsItsWorkersWhereTheyAre) {
  Form();
  Step("a", 1);
  DurableState stored;
  Tell(CancelRequested{});
  Said();
  stored.job_id = "job";
  stored.generation_counter = 1;
  stored.held = DurableGeneration{.number = 1, .plan = {}, .members = {}};
  stored.held->plan.members = {"a", "b"};
  stored.held->plan.parameters = {{0}, {1}};
  stored.held->plan.parameter_count = 2;
  stored.held->plan.plan_json = "\"plan 1\"";
  stored.known_step = 1;
  for (const char* name : {"a", "b"}) {
    wire::Hello hello;
    Describe(name, hello);
    stored.held->members[name] = hello.incarnation();
    stored.workers[name] = {hello.incarnation(), hello.host(), "{}", "rack"};
  }
  coordinator_ = Coordinator(stored, job_, now_);
  EXPECT_EQ(coordinator_.NextDeadline(), now_ + job_.policy.lease + job_.policy.adopt_extra);
  EXPECT_EQ(
      Shown(),
      R"({"phase":"recovering","jobId":"job","generation":"1","step":"1","totalSteps":"4","workers":[{"name":"a",
    "host":"host-a","standing":"absent","slowdown":1,"failureDomain":"rack"},{"name":"b","host":"host-b",
    "standing":"absent","slowdown":1,"failureDomain":"rack"}],"planJson":"\"plan 1\"","outputFolder":"/out",
    "guarantee":"plan-invariant"})");
  for (const char* name : {"a", "b"}) {
    Hello(name, [&](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_applied_step(1);
      hello.set_standing(name[0] == 'a' ? wire::STANDING_READY : wire::STANDING_TRAINING);
      hello.set_standing_generation(1);
    });
  }
  EXPECT_EQ(
      Said(),
      R"(a < {"welcome":{"name":"a","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{},"knownStep":"1","again":true,"heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,
    "noticeSeconds":120}}
list a(97 metrics-a host-a)
b < {"welcome":{"name":"b","jobId":"job","jobYaml":"yaml","secret":"secret","outputFolder":"/out",
    "emulation":{"speed":0.5},"knownStep":"1","again":true,"heartbeatSeconds":0.2,"coordinatorWaitSeconds":600,
    "noticeSeconds":120}}
log "coordinator_restarted", "generation": 1}
log "guarantee", "generation": 1, "guarantee": "plan-invariant", "reason": ""}
a < {"go":{"generation":"1"}}
list a(97 metrics-a host-a) b(98 metrics-b host-b))");
}

}  // namespace
}  // namespace heddle::elastic
