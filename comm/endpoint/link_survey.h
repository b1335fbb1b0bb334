/// \file
/// What every pair of workers would get from every transport, found by trying: the table that
/// `heddle links` prints.
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
  double link_bytes_per_second = 0;  ///< Emulated; 0: unlimited.
};

struct SurveyOptions {
  std::vector<SurveyWorker> workers;
  std::string bind_host = "127.0.0.1";  ///< Of every endpoint.
  std::vector<std::string> transports;  ///< As EndpointConfig; the others are tried, too.
  TransportRule rule = TransportRule::kCheapest;
  bool tls = false;  ///< As EndpointConfig.
  Duration pair_timeout = std::chrono::seconds(10);
};

/// One transport between two workers.
struct TransportTrial {
  std::string transport;
  Status status;  ///< Of the attempt; the links hold figures only when it is ok.
  Link there;     ///< From the lower to the higher.
  Link back;
  std::string ports;  ///< Network ports of the lower, then of the higher: "mlx5_0/1 to mlx5_2/1".
};

struct PairSurvey {
  int lower = 0;
  int higher = 0;
  std::string chosen;  ///< The transport that a job would use; empty: none joins them.
  std::string reason;  ///< Why that one.
  std::vector<TransportTrial> trials;
};

struct LinkSurvey {
  std::vector<PairSurvey> pairs;
  LinkTable links;  ///< Of the chosen transports.
  std::vector<std::vector<int>> islands;
};

/// Opens an endpoint in this process for each worker and measures pair after pair, so that none
/// disturbs another; about 150 ms a pair and transport. Errors: kInvalidArgument (no workers,
/// names, transports), those of Endpoint::Create. A pair that a transport does not join is no
/// error.
Result<LinkSurvey> SurveyLinks(const SurveyOptions& options);

}  // namespace heddle::comm
