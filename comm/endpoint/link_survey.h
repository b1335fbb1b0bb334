/// \file
/// Measures every transport between every pair of workers, for the table that `heddle links`
/// prints.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/cost/cost.h"
#include "comm/cost/transport_choice.h"

namespace heddle::comm {

struct SurveyWorker {
  std::string name;
  double link_bytes_per_second = 0;  ///< Emulated link rate; 0: unlimited.
};

struct SurveyOptions {
  std::vector<SurveyWorker> workers;
  std::string bind_host = "127.0.0.1";  ///< Bind host of every endpoint.
  std::vector<std::string> transports;  ///< EndpointConfig::transports; others are tried, too.
  TransportRule rule = TransportRule::kCheapest;
  bool tls = false;  ///< EndpointConfig::tls.
  Duration pair_timeout = std::chrono::seconds(10);
};

/// One transport between two workers.
struct TransportTrial {
  std::string transport;
  Status status;      ///< Result of the attempt; `there` and `back` are measured only if it is ok.
  Link there;         ///< Link from the lower to the higher worker.
  Link back;          ///< Link from the higher to the lower worker.
  std::string ports;  ///< Ports of the lower and the higher worker: "mlx5_0/1 to mlx5_2/1".
};

struct PairSurvey {
  int lower = 0;
  int higher = 0;
  std::string chosen;  ///< The transport that a job would use; empty: none joins them.
  std::string reason;  ///< Why that transport is chosen.
  std::vector<TransportTrial> trials;
};

struct LinkSurvey {
  std::vector<PairSurvey> pairs;
  LinkTable links;  ///< Links over the chosen transports.
  std::vector<std::vector<int>> islands;
};

/// Opens an endpoint in this process for each worker and measures one pair after the other, so that
/// measurements do not disturb each other; takes about 150 ms per pair and transport. Errors:
/// kInvalidArgument (no workers, names, transports), those of Endpoint::Create. A transport that
/// cannot join a pair is no error.
Result<LinkSurvey> SurveyLinks(const SurveyOptions& options);

}  // namespace heddle::comm
