/// \file
/// Adds up weight gradients on one worker during its schedule, and issues the reductions over the
/// holders of each parameter.
///
/// In an exact plan, the contribution of microbatch m to use u is leaf u * P + m of the reduction
/// tree, where P is the number of microbatches of the global batch rounded up to a power of two.
/// Each use keeps a binary counter: a new leaf is added to the partial sum on its left as long as
/// that is its sibling, so that at most log2(P) + 1 partial sums are live and exactly the nodes of
/// CoverRange remain. In a relaxed plan there is one partial sum, in order of arrival.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/lowering/program_builder.h"

namespace heddle::program {

/// The gradient sums of one worker. Thread: one caller.
class GradientSums {
 public:
  /// `rank`: the worker's. Errors: kInvalidArgument (a relaxed plan has a holder without a
  /// contribution).
  static Result<GradientSums> Create(const graph::Graph& graph,
                                     const GraphAnalysis& analysis,
                                     const Plan& plan,
                                     int rank);

  /// Takes ownership of `slot`, the contribution of `microbatch` to `use` of `parameter`, and emits
  /// the additions and reductions whose operands are complete now.
  void Add(graph::ParameterId parameter, int use, int microbatch, SlotId slot, ProgramBuilder& out);

  /// Returns the summed gradients by parameter, after every contribution was added.
  std::map<graph::ParameterId, SlotId> Finish(ProgramBuilder& out);

  /// Whether this worker is the parameter's owner, the lowest of its holders.
  bool Owns(graph::ParameterId parameter) const {
    return sums_.at(parameter).group.front() == rank_;
  }

 private:
  struct Partial {
    TreeNode node = {};
    SlotId slot = -1;
  };
  struct Sum {
    std::vector<int> group = {};  ///< Ranks of the holders, ascending.
    std::vector<std::vector<TreeNode>> contributions = {};
    std::map<int, std::vector<Partial>> partials = {};  ///< By use; relaxed: all under key 0.
    int64_t missing = 0;  ///< Number of this worker's contributions that are still to come.
    SlotId gradient = -1;
  };

  GradientSums(const graph::Graph& graph, const Plan& plan, int rank);
  Sum MakeSum(const GraphAnalysis& analysis, const Plan& plan, graph::ParameterId parameter) const;
  void FoldAll(Sum& sum, ProgramBuilder& out) const;
  void IssueReady(ProgramBuilder& out);
  void Reduce(graph::ParameterId parameter, Sum& sum, ProgramBuilder& out) const;

  const graph::Graph* graph_;
  int rank_;
  bool exact_;
  int64_t leaves_;  ///< Leaves per use, P.
  std::map<graph::ParameterId, Sum> sums_ = {};
  std::deque<graph::ParameterId> queue_;  ///< Reductions to issue, in the same order everywhere.
};

}  // namespace heddle::program
