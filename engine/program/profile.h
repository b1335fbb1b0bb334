/// \file
/// What was measured of each worker: seconds by node signature, memory, and links by pair.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"

namespace heddle::program {

struct WorkerProfile {
  std::string worker;
  std::map<std::string, double>
      seconds;  ///< By graph::NodeSignature; "fold", "update", "copy": seconds a byte.
  double flops_per_second = 0;     ///< Best measured; prices what was not measured.
  double bytes_per_second = 0;     ///< Of element-wise work; likewise.
  double instruction_seconds = 0;  ///< Fixed cost of one instruction.
  int64_t memory_bytes = 0;        ///< Cap for state and values; 0: unknown, unlimited.

  /// Seconds of one execution of `node`: measured, or priced by its cost.
  double Seconds(const graph::Graph& graph, const graph::Node& node) const;
  /// Seconds to fold, update or copy `bytes` ("fold", "update", "copy").
  double ByteSeconds(std::string_view what, int64_t bytes) const;
};

std::string ProfileToJson(const WorkerProfile& profile);
Result<WorkerProfile> ProfileFromJson(std::string_view text);

}  // namespace heddle::program
