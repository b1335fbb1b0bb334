/// \file
/// What communication costs, without communicating: the algorithm a collective takes is chosen
/// here, and comm runs the choice that the simulator prices. Pure. Model: a message of b bytes over
/// a link takes latency + b / bytes_per_second (Hockney's model).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::comm {

/// One direction between two workers.
struct Link {
  double latency_seconds = 50e-6;
  double bytes_per_second = 1e9;
  std::string transport = "tcp";  ///< The transport that comm reports for the pair: "shm", "tcp", …

  double Seconds(int64_t bytes) const {
    return latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  }
};

/// Links by ordered pair of workers, 0 … size-1.
class LinkTable {
 public:
  LinkTable() = default;
  explicit LinkTable(int size)
      : size_(size),
        links_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}
  int size() const { return size_; }
  Link& At(int from, int to) { return links_[Index(from, to)]; }
  const Link& At(int from, int to) const { return links_[Index(from, to)]; }

 private:
  size_t Index(int from, int to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
  }
  int size_ = 0;
  std::vector<Link> links_;
};

enum class AllReduceAlgorithm : uint8_t {
  kDirect,  ///< Everyone sends everything to everyone and folds: few bytes.
  kRing,    ///< Reduce-scatter and all-gather around a ring: many bytes.
};

std::string_view AllReduceAlgorithmName(AllReduceAlgorithm algorithm);

/// The algorithm for an all-reduce of `bytes` among `group` (ranks into `links`, ascending).
AllReduceAlgorithm ChooseAllReduce(const LinkTable& links,
                                   std::span<const int> group,
                                   int64_t bytes);

/// Predicted seconds of that all-reduce under the algorithm chosen above.
double AllReduceSeconds(const LinkTable& links, std::span<const int> group, int64_t bytes);

/// How many members of a group own a slice in a ReduceTree of `bytes`: all, unless slices got so
/// small that messages cost more than bytes.
int ReduceTreeOwners(int members, int64_t bytes);

/// Predicted seconds of Communicator::ReduceTree of a tensor of `bytes` where group[i] holds
/// contributions[i] partial sums: slice owners receive every partial sum of their slice, fold, and
/// send the result to all.
double ReduceTreeSeconds(const LinkTable& links,
                         std::span<const int> group,
                         std::span<const int> contributions,
                         int64_t bytes);

/// Predicted seconds of Communicator::AllGatherBytes of `bytes` a worker among all workers.
double AllGatherBytesSeconds(const LinkTable& links, int64_t bytes);

}  // namespace heddle::comm
