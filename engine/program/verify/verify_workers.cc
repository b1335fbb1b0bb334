#include "engine/program/verify/verify_workers.h"

#include <algorithm>

#include "engine/program/slices.h"
#include "engine/program/stages.h"
#include "engine/program/verify/verify_stage_graph.h"

namespace heddle::program {

using graph::ParameterId;
using graph::TensorId;

Result<size_t> VerifyExchanges::Add(size_t member, const Issue& issue) {
  const size_t number = issued_[member]++;
  if (number == order_.size()) {
    order_.push_back(issue);
  } else if (order_[number] != issue) {
    return InternalError(
        "issues exchange {} of microbatch {} where other members of its group issue {} of {}",
        issue.exchange, issue.microbatch, order_[number].exchange, order_[number].microbatch);
  }
  return number;
}

bool VerifyExchanges::Complete(size_t number) const {
  return std::ranges::all_of(issued_, [&](size_t issued) { return issued > number; });
}

Status VerifyExchanges::CheckEnd(size_t exchanges) const {
  if (!order_.empty() && !Complete(order_.size() - 1)) {
    return InternalError("members of a group issue unlike numbers of exchanges");
  }
  const auto first = static_cast<size_t>(std::ranges::count(order_, false, &Issue::again));
  if (first != exchanges * static_cast<size_t>(microbatches_)) {
    return InternalError("a group issues {} exchanges, expected {} for each of {} microbatches",
                         first, exchanges, microbatches_);
  }
  return Status::Ok();
}

TensorId VerifyWorker::MessageOf(TensorId id) const {
  if (group == nullptr) {
    return id;
  }
  const auto found = messages.find(id);
  return found == messages.end() ? -1 : found->second;
}

TensorId VerifyWorker::ReceivedAs(TensorId id) const {
  if (group == nullptr) {
    return id;
  }
  const auto found = group->sharded.edges.find(id);
  return found == group->sharded.edges.end() ? -1 : found->second;
}

std::optional<Box> VerifyWorker::PartOf(const graph::Graph& job, TensorId message) const {
  const Shape& shape = job.tensor(message).type.shape;
  if (group == nullptr) {
    return WholeBox(shape);
  }
  const auto found = group->sharded.edges.find(message);
  return found == group->sharded.edges.end()
             ? std::nullopt
             : graph::BoxOf(group->sharded.shardings[static_cast<size_t>(found->second)], shape,
                            member);
}

TensorId VerifyWorker::Loss(const graph::Graph& job) const {
  return group == nullptr ? job.loss : group->loss;
}

bool VerifyWorkers::Holds(int rank, ParameterId parameter, int piece) const {
  const std::vector<HeldPiece>& pieces = pieces_[static_cast<size_t>(parameter)];
  return piece >= 0 && static_cast<size_t>(piece) < pieces.size() &&
         std::ranges::binary_search(pieces[static_cast<size_t>(piece)].holders, rank);
}

const graph::Range* VerifyWorkers::RowsOf(int rank, ParameterId parameter, int piece) const {
  if (!Holds(rank, parameter, piece) || rows(parameter, piece).empty()) {
    return nullptr;
  }
  const std::vector<int>& holders =
      pieces_[static_cast<size_t>(parameter)][static_cast<size_t>(piece)].holders;
  const auto own = std::ranges::lower_bound(holders, rank) - holders.begin();
  return &rows(parameter, piece)[static_cast<size_t>(own)];
}

bool VerifyWorkers::Keeps(int rank, ParameterId parameter, int piece) const {
  const graph::Range* const kept = RowsOf(rank, parameter, piece);
  return Holds(rank, parameter, piece) && (kept == nullptr || !kept->empty());
}

bool VerifyWorkers::Reports(int rank, ParameterId parameter, int piece) const {
  const std::vector<int>& holders =
      pieces_[static_cast<size_t>(parameter)][static_cast<size_t>(piece)].holders;
  return Keeps(rank, parameter, piece) &&
         (RowsOf(rank, parameter, piece) != nullptr || holders.front() == rank);
}

Result<VerifyWorkers> VerifyWorkers::Create(const graph::Graph& graph,
                                            const Plan& plan,
                                            const std::vector<int>& ranks) {
  VerifyWorkers result;
  const std::vector<std::vector<int>> segments = ParameterSegments(graph);
  for (size_t p = 0; p < segments.size(); ++p) {
    result.pieces_.push_back(PiecesOf(graph, plan, static_cast<ParameterId>(p), segments[p]));
    std::vector<int> holders;
    result.rows_.emplace_back();
    for (const HeldPiece& piece : result.pieces_.back()) {
      result.rows_.back().push_back(KeptRows(graph, plan, piece));
      holders.insert(holders.end(), piece.holders.begin(), piece.holders.end());
    }
    std::ranges::sort(holders);
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    result.holders_.push_back(std::move(holders));
  }
  result.workers_.assign(plan.workers.size(), {.graph = &graph});
  std::map<std::vector<int>, const StageGraph*> groups;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      if (stage.layout < 0 || !std::ranges::binary_search(ranks, stage.group.front())) {
        continue;
      }
      const StageGraph*& group = groups[StageGraphKey(plan, stage)];
      if (group == nullptr) {
        HEDDLE_ASSIGN_OR_RETURN(StageGraph built, BuildStageGraph(graph, plan, stage));
        HEDDLE_RETURN_IF_ERROR(VerifyStageGraph(graph, stage, built));
        result.groups_.push_back(std::make_unique<StageGraph>(std::move(built)));
        group = result.groups_.back().get();
      }
      result.exchanges_.push_back(
          std::make_unique<VerifyExchanges>(stage.group, pipeline.microbatches));
      std::map<TensorId, TensorId> messages;
      for (const auto& [id, part] : group->sharded.edges) {
        messages.emplace(part, id);
      }
      for (size_t q = 0; q < stage.group.size(); ++q) {
        const int member = static_cast<int>(q);
        result.graphs_.push_back(
            std::make_unique<graph::Graph>(graph::Localise(group->sharded, member).graph));
        result.workers_[static_cast<size_t>(stage.group[q])] = {
            .graph = result.graphs_.back().get(),
            .group = group,
            .member = member,
            .exchanges = result.exchanges_.back().get(),
            .messages = messages};
      }
    }
  }
  return result;
}

}  // namespace heddle::program
