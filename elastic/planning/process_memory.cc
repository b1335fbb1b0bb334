#include "elastic/planning/process_memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "comm/cost/segment_sizes.h"
#include "comm/cost/transport_traits.h"
#include "engine/program/memory.h"
#include "engine/program/state.h"

namespace heddle::elastic {
namespace {

/// What the allocator loses between values that come and go, and what a process that trains takes
/// beside tensors, more than one that was measured: as found with fourteen workers of nine plans
/// (benchmarks/groups), of 8 to 145 MiB of values.
int64_t SlackBytes(int64_t values) {
  return values / 10 + (int64_t{16} << 20);
}

/// Bytes of the copies that saves and snapshots take of the state while training goes on, by rank.
std::vector<int64_t> CopyBytes(const job::JobConfig& job,
                               const graph::Graph& graph,
                               const program::Plan& plan) {
  std::vector<int64_t> written;
  for (const std::vector<program::StateBox>& boxes : program::OwnedLayout(graph, plan)) {
    int64_t bytes = 0;
    for (const program::StateBox& box : boxes) {
      bytes += ElementCount(box.box.extent) * SizeOf(graph.master_dtype());
    }
    written.push_back(bytes);
  }
  const int64_t largest = written.empty() ? 0 : *std::ranges::max_element(written);
  const bool saves = job.checkpoint.background && (job.checkpoint.every > 0 || job.checkpoint.last);
  const job::ReplicaSection& replicas = job.checkpoint.replicas;
  std::vector<int64_t> copies;
  for (const int64_t bytes : written) {
    int64_t copied = saves ? bytes : 0;
    if (replicas.every > 0) {
      // The newest whole snapshot and the next one, of the worker and of those whose copies it has.
      constexpr int64_t kSnapshots = 2;
      copied += replicas.compress ? bytes : 0;
      copied += kSnapshots * (bytes + replicas.copies * largest);
    }
    copies.push_back(copied);
  }
  return copies;
}

/// Bytes of others' memory that a worker maps: the segments of its groups on its host, and the slabs
/// of members that exchange values in slabs with it, which are mapped whole. `slabs`: by rank.
int64_t MappedBytes(const std::vector<program::Program>& programs,
                    const std::vector<int64_t>& slabs,
                    size_t rank,
                    const comm::LinkTable& links) {
  const auto shares = [&](int other) {
    const comm::TransportTraits* const traits =
        comm::FindTransport(links.At(static_cast<int>(rank), other).transport);
    return other == static_cast<int>(rank) || (traits != nullptr && traits->passes_descriptors);
  };
  const program::Program& own = programs[rank];
  const auto is_large = [&](program::SlotId slot) {
    return own.slots[static_cast<size_t>(slot)].type.bytes() >= program::kLeastSharedBytes;
  };
  std::map<std::vector<int>, bool> groups;
  if (std::ssize(programs) <= comm::kMaxSharing) {
    std::vector<int> everyone(programs.size());  // All of them vote.
    std::iota(everyone.begin(), everyone.end(), 0);
    groups.emplace(std::move(everyone), false);
  }
  for (const program::Instruction& instruction : own.instructions) {
    if (instruction.group.empty()) {
      continue;
    }
    bool& uses_slabs = groups[instruction.group];
    uses_slabs = uses_slabs || std::ranges::any_of(instruction.outputs, is_large);
  }
  int64_t bytes = 0;
  std::set<int> others;
  for (const auto& [group, uses_slabs] : groups) {
    const int64_t segment = comm::SegmentBytes(static_cast<int>(group.size()));
    if (segment == 0 || !std::ranges::all_of(group, shares)) {
      continue;
    }
    bytes += segment;
    if (uses_slabs) {
      others.insert(group.begin(), group.end());
    }
  }
  others.erase(static_cast<int>(rank));
  for (const int other : others) {
    bytes += slabs[static_cast<size_t>(other)];
  }
  return bytes;
}

}  // namespace

std::vector<int64_t> ProcessBytes(const job::JobConfig& job,
                                  const graph::Graph& graph,
                                  const program::Plan& plan,
                                  const std::vector<program::Program>& programs,
                                  const planner::ClusterProfile& cluster) {
  const auto workers = planner::SelectWorkers(cluster, plan.workers);
  const auto unknown = [](const program::WorkerProfile& it) { return it.process_bytes == 0; };
  if (!workers.ok() || std::ranges::any_of(workers->workers, unknown)) {
    return {};
  }
  std::vector<program::HostValues> values;
  std::vector<int64_t> slabs;
  for (const program::Program& program : programs) {
    values.push_back(program::HostValuesOf(program));
    slabs.push_back(values.back().slabs);
  }
  std::vector<int64_t> predicted;
  const std::vector<int64_t> copies = CopyBytes(job, graph, plan);
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    const program::WorkerProfile& profile = workers->workers[rank];
    const program::HostValues& own = values[rank];
    predicted.push_back(profile.process_bytes + profile.scratch_bytes +
                        program::StateBytes(graph, programs[rank]) + own.own + own.pieces +
                        SlackBytes(own.own) + copies[rank] +
                        MappedBytes(programs, slabs, rank, workers->links));
  }
  return predicted;
}

}  // namespace heddle::elastic
