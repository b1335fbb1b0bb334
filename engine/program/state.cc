#include "engine/program/state.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "engine/program/profile.h"
#include "engine/program/slices.h"
#include "engine/program/stages.h"

namespace heddle::program {

namespace {

void Append(graph::ParameterId parameter, const Box& box, std::vector<StateBox>& out) {
  for (const StateRole role : kStateRoles) {
    out.push_back({.parameter = parameter, .role = role, .box = box});
  }
}

// The part of a stage's work that its layout gives to each member, by its first cut.
std::vector<double> SharesOf(const Plan& plan, const Stage& stage) {
  if (stage.layout < 0) {
    return {1};
  }
  const std::vector<int>& units =
      plan.layouts[static_cast<size_t>(stage.layout)].cuts.front().units;
  const int sum = std::accumulate(units.begin(), units.end(), 0);
  std::vector<double> shares;
  for (const int share : units) {
    shares.push_back(static_cast<double>(share) / sum);
  }
  return shares;
}

// What the plan has each worker compute in a step, in 1/1024 of the most that it gives to one; at
// least 1.
std::vector<int64_t> RelativeRates(const graph::Graph& graph, const Plan& plan) {
  // Prices of no real machine, only to weigh nodes: ten operations an element-wise byte.
  WorkerProfile unit;
  unit.flops_per_second = 1;
  unit.bytes_per_second = 0.1;
  std::vector<double> by_segment(graph.segments.size(), 0);
  for (const graph::Node& node : graph.nodes) {
    by_segment[static_cast<size_t>(node.segment)] += unit.Seconds(graph, node);
  }
  std::vector<double> work(plan.workers.size(), 0);
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      double once = 0;
      for (int segment = stage.first_segment; segment < stage.last_segment; ++segment) {
        once += by_segment[static_cast<size_t>(segment)];
      }
      const std::vector<double> shares = SharesOf(plan, stage);
      for (size_t q = 0; q < stage.group.size(); ++q) {
        work[static_cast<size_t>(stage.group[q])] = shares[q] * once * pipeline.microbatches;
      }
    }
  }
  constexpr double kMax = 1024;
  const double most = work.empty() ? 0 : *std::max_element(work.begin(), work.end());
  std::vector<int64_t> rates;
  rates.reserve(work.size());
  for (const double one : work) {
    rates.push_back(most > 0 ? std::max<int64_t>(1, static_cast<int64_t>(kMax * one / most)) : 1);
  }
  return rates;
}

using BoxKey = std::pair<graph::ParameterId, StateRole>;

struct Holding {
  size_t sender = 0;  ///< Index into `held`.
  const Box* box = nullptr;
};

// A box that a worker lacks, by position in the result's order.
struct Need {
  int target = 0;
  BoxKey key;
  Box box;
  int64_t elements = 0;
};

std::vector<Need> CollectNeeds(const graph::Graph& graph,
                               const std::vector<HeldState>& held,
                               const Plan& next) {
  std::map<std::string_view, std::map<BoxKey, std::vector<const Box*>>> by_worker;
  for (const HeldState& state : held) {
    for (const StateBox& box : state.boxes) {
      by_worker[state.worker][{box.parameter, box.role}].push_back(&box.box);
    }
  }
  std::vector<Need> needs;
  const StateLayout layout = LayoutOf(graph, next);
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    const auto own = by_worker.find(next.workers[rank]);
    for (const StateBox& wanted : layout[rank]) {
      const BoxKey key{wanted.parameter, wanted.role};
      std::vector<Box> missing = {wanted.box};
      if (own != by_worker.end()) {
        if (const auto boxes = own->second.find(key); boxes != own->second.end()) {
          for (const Box* const box : boxes->second) {
            missing = Subtract(missing, *box);
          }
        }
      }
      for (Box& box : missing) {
        const int64_t elements = ElementCount(box.extent);
        if (elements > 0) {
          needs.push_back({.target = static_cast<int>(rank),
                           .key = key,
                           .box = std::move(box),
                           .elements = elements});
        }
      }
    }
  }
  return needs;
}

// Takes one need from the holders with the least to send so far, until it is covered.
void Assign(const Need& need,
            const std::vector<Holding>& holdings,
            const std::vector<HeldState>& held,
            const Plan& next,
            std::vector<int64_t>& load,
            std::vector<Transfer>& out) {
  const std::string& target = next.workers[static_cast<size_t>(need.target)];
  const auto emit = [&](const Box& box, const std::string& source) {
    out.push_back({.parameter = need.key.first,
                   .role = need.key.second,
                   .box = box,
                   .source = source,
                   .target = target});
  };
  std::vector<Box> missing = {need.box};
  while (!missing.empty()) {
    const Box box = missing.back();
    missing.pop_back();
    const Holding* best = nullptr;
    std::optional<Box> best_part;
    for (const Holding& holding : holdings) {
      std::optional<Box> part = Intersect(box, *holding.box);
      if (part.has_value() && (best == nullptr || load[holding.sender] < load[best->sender])) {
        best = &holding;
        best_part = std::move(part);
      }
    }
    if (best == nullptr) {
      emit(box, "");
      continue;
    }
    load[best->sender] += ElementCount(best_part->extent);
    emit(*best_part, held[best->sender].worker);
    for (Box& rest : Subtract(box, *best_part)) {
      missing.push_back(std::move(rest));
    }
  }
}

}  // namespace

std::string_view StateRoleName(StateRole role) {
  switch (role) {
    case StateRole::kMaster:
      return "master";
    case StateRole::kExpAvg:
      return "exp_avg";
    case StateRole::kExpAvgSq:
      return "exp_avg_sq";
  }
  return "unknown";
}

StateLayout LayoutOf(const graph::Graph& graph, const Plan& plan) {
  StateLayout layout(plan.workers.size());
  const std::vector<std::vector<int>> segments = ParameterSegments(graph);
  for (size_t p = 0; p < segments.size(); ++p) {
    const auto id = static_cast<graph::ParameterId>(p);
    if (plan.divides_optimizer) {
      for (const HeldPiece& piece : KeptPiecesOf(graph, plan, id, segments[p])) {
        for (const int holder : piece.holders) {
          Append(id, piece.box, layout[static_cast<size_t>(holder)]);
        }
      }
      continue;
    }
    for (const Pipeline& pipeline : plan.pipelines) {
      for (const int index : StagesOf(pipeline, segments[p])) {
        const Stage& stage = pipeline.stages[static_cast<size_t>(index)];
        const std::vector<std::optional<Box>> boxes = BoxesOf(graph, plan, stage, id);
        for (size_t q = 0; q < boxes.size(); ++q) {
          if (boxes[q]) {
            Append(id, *boxes[q], layout[static_cast<size_t>(stage.group[q])]);
          }
        }
      }
    }
  }
  return layout;
}

StateLayout OwnedLayout(const graph::Graph& graph, const Plan& plan) {
  const std::vector<std::vector<int>> segments = ParameterSegments(graph);
  struct Owned {
    StateBox box;
    const std::vector<int>* holders;
  };
  std::vector<std::vector<HeldPiece>> pieces;
  for (size_t p = 0; p < segments.size(); ++p) {
    pieces.push_back(KeptPiecesOf(graph, plan, static_cast<graph::ParameterId>(p), segments[p]));
  }
  std::vector<Owned> boxes;
  for (size_t p = 0; p < pieces.size(); ++p) {
    for (const HeldPiece& piece : pieces[p]) {
      for (size_t r = 0; r < kStateRoles.size() && !piece.holders.empty(); ++r) {
        boxes.push_back({.box = {.parameter = static_cast<graph::ParameterId>(p),
                                 .role = kStateRoles[r],
                                 .box = piece.box},
                         .holders = &piece.holders});
      }
    }
  }
  // Those without a choice first, then the largest: what can choose fills the gaps.
  std::stable_sort(boxes.begin(), boxes.end(), [&](const Owned& a, const Owned& b) {
    const bool choice_a = a.holders->size() > 1;
    const bool choice_b = b.holders->size() > 1;
    return choice_a != choice_b ? choice_b
                                : ElementCount(a.box.box.extent) > ElementCount(b.box.box.extent);
  });
  const std::vector<int64_t> rates = RelativeRates(graph, plan);
  std::vector<int64_t> load(plan.workers.size(), 0);
  StateLayout layout(plan.workers.size());
  for (const auto& [box, holders] : boxes) {
    const int64_t elements = ElementCount(box.box.extent);
    // a ends before b: (load_a + elements) / rate_a < (load_b + elements) / rate_b.
    const auto ends_before = [&](int a, int b) {
      const auto i = static_cast<size_t>(a);
      const auto j = static_cast<size_t>(b);
      return (load[i] + elements) * rates[j] < (load[j] + elements) * rates[i];
    };
    const auto owner =
        static_cast<size_t>(*std::min_element(holders->begin(), holders->end(), ends_before));
    load[owner] += elements;
    layout[owner].push_back(box);
  }
  for (std::vector<StateBox>& owned : layout) {
    std::sort(owned.begin(), owned.end(), [](const StateBox& a, const StateBox& b) {
      return std::tie(a.parameter, a.role, a.box) < std::tie(b.parameter, b.role, b.box);
    });
  }
  return layout;
}

std::vector<Transfer> PlanTransfers(const graph::Graph& graph,
                                    const std::vector<HeldState>& held,
                                    const Plan& next) {
  std::map<BoxKey, std::vector<Holding>> holders;
  for (size_t sender = 0; sender < held.size(); ++sender) {
    for (const StateBox& box : held[sender].boxes) {
      holders[{box.parameter, box.role}].push_back({.sender = sender, .box = &box.box});
    }
  }
  std::vector<Need> needs = CollectNeeds(graph, held, next);
  // Needs with the fewest sources first, then the largest: what can choose fills the gaps.
  std::vector<size_t> order(needs.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto sources = [&](const Need& need) {
    const auto found = holders.find(need.key);
    return found == holders.end() ? size_t{0} : found->second.size();
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t sources_a = sources(needs[a]);
    const size_t sources_b = sources(needs[b]);
    return sources_a != sources_b ? sources_a < sources_b : needs[a].elements > needs[b].elements;
  });
  std::vector<int64_t> load(held.size(), 0);
  std::vector<std::vector<Transfer>> by_need(needs.size());
  const std::vector<Holding> nobody;
  for (const size_t index : order) {
    const auto found = holders.find(needs[index].key);
    Assign(needs[index], found == holders.end() ? nobody : found->second, held, next, load,
           by_need[index]);
  }
  std::vector<Transfer> transfers;
  for (std::vector<Transfer>& list : by_need) {
    std::move(list.begin(), list.end(), std::back_inserter(transfers));
  }
  return transfers;
}

Status CheckCoverage(const graph::Graph& graph,
                     const std::vector<StateBox>& wanted,
                     const std::vector<StateBox>& given) {
  std::map<BoxKey, std::vector<Box>> missing;
  for (const StateBox& box : wanted) {
    missing[{box.parameter, box.role}].push_back(box.box);
  }
  const auto count = [](const std::vector<Box>& boxes) {
    int64_t elements = 0;
    for (const Box& box : boxes) {
      elements += ElementCount(box.extent);
    }
    return elements;
  };
  const auto name = [&](const BoxKey& key) {
    return std::string(StateRoleName(key.second)) + " of " + graph.parameter(key.first).name;
  };
  for (const StateBox& box : given) {
    const BoxKey key{box.parameter, box.role};
    std::vector<Box>& boxes = missing[key];
    const int64_t before = count(boxes);
    boxes = Subtract(boxes, box.box);
    if (before - count(boxes) != ElementCount(box.box.extent)) {
      return InternalError("elements of {} {} would be given twice, or to whom they are not for",
                           name(key), ToString(box.box));
    }
  }
  for (const auto& [key, boxes] : missing) {
    if (count(boxes) > 0) {
      return InternalError("nobody gives {} {}", name(key), ToString(boxes.front()));
    }
  }
  return Status::Ok();
}

int64_t TransferBytes(const graph::Graph& graph, const std::vector<Transfer>& transfers) {
  int64_t elements = 0;
  for (const Transfer& transfer : transfers) {
    elements += ElementCount(transfer.box.extent);
  }
  return elements * SizeOf(graph.master_dtype());
}

}  // namespace heddle::program
