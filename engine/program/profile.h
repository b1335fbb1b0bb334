/// \file
/// The measured performance of a worker: seconds by node signature, rates and memory.
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
      seconds;  ///< By graph::NodeSignature; "fold", "update", "copy": seconds per byte.
  double flops_per_second = 0;     ///< Best rate measured; prices nodes not measured.
  double bytes_per_second = 0;     ///< Rate of element-wise work; prices nodes not measured.
  double instruction_seconds = 0;  ///< Fixed cost of an instruction.
  int64_t memory_bytes = 0;        ///< Limit for state and values; 0: unknown, unlimited.
  int64_t scratch_bytes =
      0;  ///< The most a kernel takes beside values; cards' memory_bytes lack it.
  int64_t process_bytes = 0;  ///< Of the host's memory, taken by the process beside tensors.

  /// Seconds of one execution of `node`: measured; else from measured nodes that differ from it in
  /// size alone, as the shares of a layer do, along the line through the nearest two; else
  /// predicted by its cost.
  double Seconds(const graph::Graph& graph, const graph::Node& node) const;
  /// Seconds to fold, update or copy `bytes` bytes; `what` is "fold", "update" or "copy".
  double ByteSeconds(std::string_view what, int64_t bytes) const;
};

std::string ProfileToJson(const WorkerProfile& profile);
Result<WorkerProfile> ProfileFromJson(std::string_view text);

}  // namespace heddle::program
