#include "elastic/control/membership/wait_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

// The most workers of a chain that are named in words; those in the middle of a longer one are
// counted.
constexpr size_t kMaxNamed = 8;

}  // namespace

WaitGraph::WaitGraph(std::vector<WaitNode> nodes) : nodes_(std::move(nodes)) {
  std::map<std::string, Index> index;
  for (Index i = 0; i < nodes_.size(); ++i) {
    index[nodes_[i].name] = i;
  }
  awaited_.resize(nodes_.size());
  waiters_.resize(nodes_.size());
  for (Index i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_heard || !nodes_[i].waits) {
      continue;  // What its connections wait for does not hold it up.
    }
    std::set<Index> awaited;
    for (const std::string& name : nodes_[i].waits_for) {
      if (const auto found = index.find(name); found != index.end() && found->second != i) {
        awaited.insert(found->second);
      }
    }
    awaited_[i].assign(awaited.begin(), awaited.end());
    for (const Index other : awaited) {
      waiters_[other].push_back(i);
    }
  }
}

// The chain from the farthest waiter to the culprit; of several waiters the first by rank.
std::vector<WaitGraph::Index> WaitGraph::ChainOf(Index culprit) const {
  std::vector<std::optional<Index>> next(nodes_.size());
  std::vector<Index> level = {culprit};
  Index farthest = culprit;
  next[culprit] = culprit;
  while (!level.empty()) {
    farthest = *std::min_element(level.begin(), level.end());
    std::vector<Index> before;
    for (const Index node : level) {
      for (const Index waiter : waiters_[node]) {
        if (!next[waiter]) {
          next[waiter] = node;
          before.push_back(waiter);
        }
      }
    }
    level = std::move(before);
  }
  std::vector<Index> chain = {farthest};
  while (chain.back() != culprit) {
    chain.push_back(*next[chain.back()]);
  }
  return chain;
}

std::string WaitGraph::Words(const std::vector<Index>& chain) const {
  std::string words;
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool named =
        chain.size() <= kMaxNamed || i < kMaxNamed / 2 || i >= chain.size() - kMaxNamed / 2;
    if (!named) {
      words += i == kMaxNamed / 2
                   ? fmt::format(" waits for {} others, of whom the last", chain.size() - kMaxNamed)
                   : "";
      continue;
    }
    words += (words.empty() ? "" : " waits for ") + nodes_[chain[i]].name;
  }
  return words;
}

std::string WaitGraph::ChainTo(const std::string& worker) const {
  for (Index i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].name == worker && !waiters_[i].empty()) {
      return Words(ChainOf(i));
    }
  }
  return "";
}

WaitGraph::Verdict WaitGraph::Judge(Duration limit, Duration patience, Time now) const {
  Verdict verdict;
  for (Index i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].waits || !IsQuiet(i, limit, now)) {
      continue;
    }
    Culprit culprit{.worker = nodes_[i].name, .waiters = {}, .reason = {}};
    for (const Index waiter : waiters_[i]) {
      culprit.waiters.push_back(nodes_[waiter].name);
    }
    if (!culprit.waiters.empty()) {
      culprit.reason = fmt::format("{}, which did nothing for {:.1f} s", Words(ChainOf(i)),
                                   Seconds(now - nodes_[i].quiet_since));
      verdict.culprits.push_back(std::move(culprit));
    }
  }
  if (verdict.culprits.empty()) {
    FindCircle(limit, now, verdict);
  }
  if (verdict.culprits.empty() && verdict.reason.empty()) {
    FindStandstill(limit, patience, now, verdict);
  }
  return verdict;
}

// By node: true if it waits, and no node that it waits for, directly or not, can free it. A node
// can free others if it does something, waits for something that is no node, or is not heard.
std::vector<bool> WaitGraph::StuckAmong(Duration limit, Time now) const {
  std::vector<bool> stuck(nodes_.size());
  std::vector<Index> freed;
  for (Index i = 0; i < nodes_.size(); ++i) {
    stuck[i] = !awaited_[i].empty() && IsQuiet(i, limit, now);
    if (!stuck[i]) {
      freed.push_back(i);
    }
  }
  while (!freed.empty()) {
    const Index node = freed.back();
    freed.pop_back();
    for (const Index waiter : waiters_[node]) {
      if (stuck[waiter]) {
        stuck[waiter] = false;
        freed.push_back(waiter);
      }
    }
  }
  return stuck;
}

void WaitGraph::FindCircle(Duration limit, Time now, Verdict& verdict) const {
  const std::vector<bool> stuck = StuckAmong(limit, now);
  const auto first = std::find(stuck.begin(), stuck.end(), true);
  if (first == stuck.end()) {
    return;
  }
  std::vector<Index> path = {static_cast<Index>(first - stuck.begin())};
  while (true) {
    const Index next = awaited_[path.back()].front();  // It is stuck, or the last one were free.
    const auto seen = std::find(path.begin(), path.end(), next);
    if (seen != path.end()) {
      path.erase(path.begin(), seen);
      break;
    }
    path.push_back(next);
  }
  Time quiet_since;
  for (const Index node : path) {
    verdict.circle.push_back(nodes_[node].name);
    quiet_since = std::max(quiet_since, nodes_[node].quiet_since);
  }
  path.push_back(path.front());
  verdict.reason = fmt::format("{}, and none did anything for {:.1f} s", Words(path),
                               Seconds(now - quiet_since));
  verdict.last = nodes_[*std::max_element(path.begin(), path.end())].name;
}

// Finds that all workers hang, so that none waits for another, or that those which wait do so for
// something that is no node.
void WaitGraph::FindStandstill(Duration limit,
                               Duration patience,
                               Time now,
                               Verdict& verdict) const {
  const bool waits =
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node.waits; });
  Time quiet_since;
  for (Index i = 0; i < nodes_.size(); ++i) {
    if (!IsQuiet(i, waits ? patience : limit, now)) {
      return;
    }
    quiet_since = std::max(quiet_since, nodes_[i].quiet_since);
  }
  if (!nodes_.empty()) {
    verdict.reason = fmt::format("{}, and none of {} did anything for {:.1f} s",
                                 waits ? "whom they wait for is no member" : "nobody waits",
                                 nodes_.size() == 1 ? "one" : std::to_string(nodes_.size()),
                                 Seconds(now - quiet_since));
  }
}

WaitGraph WaitsAmong(const std::vector<std::string>& ranks,
                     const std::vector<int64_t>& generations,
                     const Roster& roster,
                     Time since,
                     Duration fresh,
                     Time now) {
  std::vector<WaitNode> nodes;
  for (const std::string& name : ranks) {
    const Worker* worker = roster.Find(name);
    if (worker == nullptr) {
      continue;
    }
    const bool counts = std::find(generations.begin(), generations.end(),
                                  worker->waits.generation) != generations.end();
    Time quiet_since = std::max(since, worker->waits.changed_at);
    if (worker->progressed_at) {
      quiet_since = std::max(quiet_since, *worker->progressed_at);
    }
    nodes.push_back(
        {.name = name,
         .is_heard = worker->seen && worker->connection != 0 && now - worker->last_heard_at < fresh,
         .waits = worker->waits.any,
         .waits_for = counts ? worker->waits.names : std::vector<std::string>(),
         .quiet_since = quiet_since});
  }
  return WaitGraph(std::move(nodes));
}

}  // namespace heddle::elastic
