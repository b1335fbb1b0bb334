/// \file
/// The fixture of tests of drift: workers that report windows of steps, and measure their links
/// with the results that a test sets.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {

class DriftFixture : public CoordinatorTest {
 protected:
  DriftFixture() { job_.policy.links.transports = {"tcp"}; }

  // A worker joins, on a host of its own.
  void Join(const std::string& name) {
    Hello(name, [&](wire::Hello& hello) {
      hello.set_network("net-" + name);
      hello.set_probe_address("probe of " + name);
    });
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }
  void FormOf(const std::vector<std::string>& names, double rate) {
    job_.policy.initial_workers = static_cast<int>(names.size());
    Tell(Submitted{job_});
    for (const std::string& name : names) {
      Join(name);
    }
    MeasureAll([rate](const auto& /*pair*/) { return rate; });
    AnswerPlan();
    AnswerPrepared(1);
    AnswerReady(members_, 1);
    sent_.clear();
  }
  // Answers every request to measure links with the rate that `rate` returns for the pair of names,
  // which are in ascending order; 0: the measurement fails.
  template <typename Rate>
  void MeasureAll(Rate rate) {
    Heartbeats();  // What the last message made due is asked for with the next one.
    for (bool any = true; any;) {
      any = false;
      const auto asked = std::exchange(sent_, {});
      for (const auto& [name, messages] : asked) {
        for (const wire::ToWorker& message : messages) {
          if (!message.has_measure_links()) {
            sent_[name].push_back(message);
            continue;
          }
          any = true;
          const auto& members = message.measure_links().members();
          const std::pair<std::string, std::string> pair =
              std::minmax(members[0].name(), members[1].name());
          AnswerLinks(name, message.measure_links().request(), rate(pair));
        }
      }
    }
    Heartbeats();
  }
  void AnswerLinks(const std::string& name, int64_t request, double rate) {
    From(name, [&](wire::FromWorker& message) {
      wire::LinksMeasured& measured = *message.mutable_links_measured();
      measured.set_request(request);
      wire::LinksMeasured::Link& link = *measured.add_links();
      link.set_transport("tcp");
      link.set_latency_seconds(1e-5);
      link.set_bytes_per_second(rate);
      link.set_error(rate > 0 ? "" : "deadline passed");
    });
  }
  void Heartbeats() {
    for (const auto& [name, connection] : std::map(connections_)) {
      From(name, [](wire::FromWorker& message) { message.mutable_heartbeat(); });
    }
  }
  // All members report windows of five steps, one for each of `seconds`. They take as long as
  // predicted, but for those in `ratios`, which take so many times as long.
  void Windows(std::initializer_list<double> seconds,
               const std::map<std::string, double>& ratios = {}) {
    for (const double each : seconds) {
      ++window_;
      for (const std::string& name : members_) {
        const auto ratio = ratios.find(name);
        Window(name, window_, ratio == ratios.end() ? 1 : ratio->second, each);
      }
    }
  }
  void BeginWindows() { window_ = 0; }
  // A worker reports windows in which it takes `ratio` times as long as predicted; the first window
  // of a generation does not count.
  void Slow(const std::string& name, double ratio, int windows = 6) {
    for (int i = 0; i < windows; ++i) {
      Window(name, ++window_, ratio, 1);
    }
  }
  // Starts another coordinator, which finds its workers training.
  void Restart(const std::vector<std::string>& names) {
    coordinator_ = Coordinator(stored_, job_, now_);
    connections_.clear();
    for (const std::string& name : names) {
      Hello(name, [&](wire::Hello& hello) {
        hello.set_network("net-" + name);
        hello.set_probe_address("probe of " + name);
        hello.set_generation(1);
        hello.set_standing(wire::STANDING_TRAINING);
        hello.set_standing_generation(1);
      });
      From(name,
           [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
    }
  }
  void AnswerStopped() {
    for (const char* name : {"a", "b", "c"}) {
      if (Last(name, wire::ToWorker::kStop) != nullptr) {
        From(name, [&](wire::FromWorker& message) {
          message.mutable_stopped()->set_generation(stored_.held->number);
        });
      }
    }
  }
  // An operator limits what a worker's links carry.
  void Emulate(const std::string& name, double link_bytes_per_second) {
    EmulateRequested request;
    request.worker = name;
    request.emulation.set_link_bytes_per_second(link_bytes_per_second);
    request.set_link = true;
    Tell(request);
  }
  // The plan that was looked for comes into force.
  void Change() {
    AnswerPlan();
    const int64_t generation = Last("a", wire::ToWorker::kPrepare)->prepare().generation();
    AnswerPrepared(generation);
    AnswerStopped();
    AnswerReady(members_, generation);
    BeginWindows();
  }
  static std::vector<double> RatesOf(const wire::Links& links) {
    std::vector<double> rates;
    for (const wire::Links::Pair& pair : links.pairs()) {
      rates.push_back(pair.transports(0).bytes_per_second());
    }
    return rates;
  }
  double Number(const std::string& event, const std::string& field) const {
    return std::get<double>(*Logged(event).Find(field));
  }

 private:
  void Window(const std::string& name, int64_t number, double ratio, double step_seconds) {
    constexpr int64_t kSteps = 5;
    From(name, [&](wire::FromWorker& message) {
      wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
      heartbeat.set_generation(stored_.held ? stored_.held->number : 0);
      heartbeat.set_window(number);
      heartbeat.set_busy_seconds(ratio);
      heartbeat.set_predicted_busy_seconds(1);
      heartbeat.set_window_steps(kSteps);
      heartbeat.set_window_seconds(kSteps * step_seconds);
    });
  }

  int64_t window_ = 0;
};

}  // namespace heddle::elastic
