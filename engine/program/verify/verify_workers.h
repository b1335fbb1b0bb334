/// \file
/// What each worker's Program is checked against: the graph that it runs, and what it has of the
/// parameters; and the exchanges of groups, as far as their members have come.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/program/pieces.h"
#include "engine/program/program.h"
#include "engine/program/stage_graph.h"

namespace heddle::program {

/// The exchanges of one group in the order in which its members issue them. Thread: one caller.
class VerifyExchanges {
 public:
  struct Issue {
    int exchange = -1;
    int microbatch = -1;
    bool again = false;
    friend bool operator==(const Issue&, const Issue&) = default;
  };

  VerifyExchanges(Group group, int microbatches)
      : group_(std::move(group)),
        microbatches_(microbatches),
        issued_(group_.size(), 0) {}

  const Group& group() const { return group_; }
  /// Notes that a member issues an exchange, and returns its number. Errors: kInternal (the others
  /// issue another one there).
  Result<size_t> Add(size_t member, const Issue& issue);
  /// Whether all members have issued the exchange of this number.
  bool Complete(size_t number) const;
  /// Checks that all members have issued all exchanges for all microbatches. Errors: kInternal.
  Status CheckEnd(size_t exchanges) const;

 private:
  const Group group_;
  const int microbatches_;
  std::vector<size_t> issued_;  ///< Number, by member.
  std::vector<Issue> order_;
};

/// A worker, as its plan has it.
struct VerifyWorker {
  const graph::Graph* graph = nullptr;  ///< The job's, or that of a member of a group.
  const StageGraph* group = nullptr;    ///< Null: the stage is one worker.
  int member = 0;
  VerifyExchanges* exchanges = nullptr;
  /// By tensor of a group's graph that travels: that of the job's graph.
  std::map<graph::TensorId, graph::TensorId> messages = {};

  /// The tensor of the job's graph that travels as `id`; -1: `id` is not to travel.
  graph::TensorId MessageOf(graph::TensorId id) const;
  /// The tensor of the worker's graph as which a tensor of the job's graph comes.
  graph::TensorId ReceivedAs(graph::TensorId id) const;
  /// The part of a tensor of the job's graph that the worker sends or receives; nothing: it has none.
  std::optional<Box> PartOf(const graph::Graph& job, graph::TensorId message) const;
  /// The loss.
  graph::TensorId Loss(const graph::Graph& job) const;
};

/// The workers of a plan by rank. Thread: one caller.
class VerifyWorkers {
 public:
  /// Checks the graphs of groups, too. `ranks`: those to follow. Errors: kInternal, and those of
  /// BuildStageGraph.
  static Result<VerifyWorkers> Create(const graph::Graph& graph,
                                      const Plan& plan,
                                      const std::vector<int>& ranks);

  const VerifyWorker& of(int rank) const { return workers_[static_cast<size_t>(rank)]; }
  /// The pieces of each parameter, by parameter.
  const std::vector<std::vector<HeldPiece>>& pieces() const { return pieces_; }
  /// The ranks that have a part of each parameter, ascending.
  const std::vector<std::vector<int>>& holders() const { return holders_; }
  /// Whether a worker has this piece.
  bool Holds(int rank, graph::ParameterId parameter, int piece) const;
  /// By holder, the rows of a piece that each keeps; empty: all keep all of it. Precondition: there
  /// is such a piece.
  const std::vector<graph::Range>& rows(graph::ParameterId parameter, int piece) const {
    return rows_[static_cast<size_t>(parameter)][static_cast<size_t>(piece)];
  }
  /// The rows of a piece that a worker keeps; null: all, or it does not hold it.
  const graph::Range* RowsOf(int rank, graph::ParameterId parameter, int piece) const;
  /// Whether a worker has this piece and keeps a part of it.
  bool Keeps(int rank, graph::ParameterId parameter, int piece) const;
  /// Whether a worker is to report a norm of this piece: the lowest of the holders, or each of those
  /// that keep a part.
  bool Reports(int rank, graph::ParameterId parameter, int piece) const;

 private:
  std::vector<VerifyWorker> workers_;
  std::vector<std::vector<HeldPiece>> pieces_;
  std::vector<std::vector<std::vector<graph::Range>>> rows_;
  std::vector<std::vector<int>> holders_;
  std::vector<std::unique_ptr<StageGraph>> groups_;
  std::vector<std::unique_ptr<graph::Graph>> graphs_;
  std::vector<std::unique_ptr<VerifyExchanges>> exchanges_;
};

}  // namespace heddle::program
