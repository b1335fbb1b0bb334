#include "comm/endpoint/link_survey.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "base/thread.h"
#include "comm/communicator.h"
#include "comm/cost/islands.h"
#include "comm/cost/transport_traits.h"

namespace heddle::comm {

namespace {

struct Surveyed {
  EndpointConfig config;
  std::unique_ptr<Endpoint> endpoint;
};

struct End {
  Link link;
  std::string ports;
};

/// One end of a trial: forms the pair's group over the transports that its endpoint allows, and
/// measures.
Result<End> MeasureEnd(Endpoint& endpoint,
                       int64_t generation,
                       int rank,
                       const std::vector<GroupMember>& members,
                       Deadline deadline) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto group,
      endpoint.Connect(
          {.generation = generation, .rank = rank, .members = members, .peers = {1 - rank}},
          deadline));
  HEDDLE_ASSIGN_OR_RETURN(const Link link, endpoint.MeasureLink(*group, 1 - rank, 1, deadline));
  // Both ends leave together: an end that left at once would end the other's last messages.
  HEDDLE_RETURN_IF_ERROR(group->Barrier({.group = {}, .tag = 2, .deadline = deadline}));
  return End{.link = link, .ports = group->ports(1 - rank)};
}

TransportTrial Try(const std::string& transport,
                   int64_t generation,
                   const Surveyed& first,
                   const Surveyed& second,
                   const std::vector<GroupMember>& members,
                   Deadline deadline) {
  TransportTrial trial;
  trial.transport = transport;
  Endpoint& lower = *first.endpoint;
  Endpoint& higher = *second.endpoint;
  for (const Surveyed* one : {&first, &second}) {
    EndpointConfig config = one->config;
    config.transports = {transport};
    trial.status = one->endpoint->Configure(config);
    if (!trial.status.ok()) {
      return trial;
    }
  }
  Result<End> back = UnavailableError("not measured");
  Thread other("link-survey", [&] { back = MeasureEnd(higher, generation, 1, members, deadline); });
  const Result<End> there = MeasureEnd(lower, generation, 0, members, deadline);
  if (!there.ok()) {
    // The other end waits for a connection that will not come.
    higher.Fence(generation + 1);
  }
  other.Join();
  trial.status = there.ok() ? back.status() : there.status();
  if (!there.ok() && !back.ok()) {  // One of them may only say that the other is gone.
    trial.status = there.status().WithContext("{}; at the other end", back.status().message());
  }
  if (trial.status.ok()) {
    trial.there = there->link;
    trial.back = back->link;
    trial.ports = there->ports.empty() ? "" : fmt::format("{} to {}", there->ports, back->ports);
  }
  return trial;
}

/// What a job would take.
void Choose(PairSurvey& pair, const TransportPreference& preference) {
  std::vector<MeasuredTransport> measured;
  std::string failed;
  for (const std::string& transport : preference.list) {
    const auto trial = std::ranges::find(pair.trials, transport, &TransportTrial::transport);
    if (trial->status.ok()) {
      measured.push_back({transport, trial->there, trial->back});
    } else if (measured.empty()) {
      failed += (failed.empty() ? "" : ", ") + transport;
    }
  }
  if (measured.empty()) {
    pair.reason = fmt::format("nothing joins them: not {}", failed);
    return;
  }
  const TransportChoice choice = ChooseTransport(preference, measured);
  pair.chosen = choice.transport;
  pair.reason = choice.why;
  if (!choice.cheapest && !failed.empty()) {
    pair.reason += fmt::format(" that works; not {}", failed);
  }
}

}  // namespace

Result<LinkSurvey> SurveyLinks(const SurveyOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckTransportNames(options.transports));
  if (options.workers.empty()) {
    return InvalidArgumentError("links between no workers");
  }
  const std::vector<std::string> all = TransportNames();
  const TransportPreference preference{
      .list = options.transports.empty() ? all : options.transports, .rule = options.rule};

  std::random_device device;
  const std::string secret =
      fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
  metrics::Registry unused;
  std::vector<Surveyed> endpoints;
  for (const SurveyWorker& worker : options.workers) {
    const EndpointConfig config{
        .worker = worker.name, .job = "link-survey", .secret = secret, .tls = options.tls};
    HEDDLE_ASSIGN_OR_RETURN(auto made,
                            Endpoint::Create({.config = config,
                                              .bind_host = options.bind_host,
                                              .link_bytes_per_second = worker.link_bytes_per_second,
                                              .metrics = &unused}));
    endpoints.push_back({.config = config, .endpoint = std::move(made)});
  }

  LinkSurvey survey;
  const int size = static_cast<int>(endpoints.size());
  survey.links = LinkTable(size);
  int64_t generation = 0;
  for (int lower = 0; lower < size; ++lower) {
    for (int higher = lower + 1; higher < size; ++higher) {
      PairSurvey pair;
      pair.lower = lower;
      pair.higher = higher;
      const Surveyed& a = endpoints[static_cast<size_t>(lower)];
      const Surveyed& b = endpoints[static_cast<size_t>(higher)];
      const std::vector<GroupMember> members{
          {.name = options.workers[static_cast<size_t>(lower)].name,
           .address = a.endpoint->address()},
          {.name = options.workers[static_cast<size_t>(higher)].name,
           .address = b.endpoint->address()}};
      for (const std::string& transport : all) {
        // Fencing a failed generation takes the next number, too.
        generation += 2;
        pair.trials.push_back(
            Try(transport, generation, a, b, members, After(options.pair_timeout)));
        const TransportTrial& trial = pair.trials.back();
        if (trial.status.code() == StatusCode::kInvalidArgument) {
          return trial.status;
        }
      }
      Choose(pair, preference);
      Link& there = survey.links.At(lower, higher);
      Link& back = survey.links.At(higher, lower);
      there = back = {.latency_seconds = 0, .bytes_per_second = 0, .transport = ""};
      for (const TransportTrial& trial : pair.trials) {
        if (trial.transport == pair.chosen) {
          there = trial.there;
          back = trial.back;
        }
      }
      survey.pairs.push_back(std::move(pair));
    }
  }
  survey.islands = FindIslands(survey.links);
  return survey;
}

}  // namespace heddle::comm
