/// \file
/// Adds up weight gradients on one worker while its schedule runs, and issues the reductions over
/// the holders of each parameter.
///
/// Exact: the contribution of microbatch m to use u is leaf u * P + m of the reduction tree, where
/// P is the number of microbatches of the global batch rounded up to a power of two. Each use keeps
/// a binary counter: a new leaf is added to the partial sum on its left as long as that is its
/// sibling, so that at most log2(P) + 1 partial sums are live and exactly the nodes of CoverRange
/// remain. Relaxed: one partial sum, in order of arrival.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/lowering/program_builder.h"

namespace heddle::program {

/// Thread: one caller.
class GradientSums {
 public:
  /// Errors: kInvalidArgument when a relaxed plan has a holder without a contribution.
  static Result<GradientSums> Create(const graph::Graph& graph,
                                     const GraphAnalysis& analysis,
                                     const Plan& plan,
                                     int rank);

  /// Takes over `slot`, the contribution of `microbatch` to `use` of `parameter`; emits the
  /// additions and the reductions that are complete now.
  void Add(graph::ParameterId parameter, int use, int microbatch, SlotId slot, ProgramBuilder& out);

  /// Every contribution was added: the summed gradients by parameter.
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
    std::vector<int> group = {};  ///< Holders, ascending.
    std::vector<std::vector<TreeNode>> contributions = {};
    std::map<int, std::vector<Partial>> partials = {};  ///< By use; relaxed: all under 0.
    int64_t missing = 0;  ///< Contributions of this worker still to come.
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
  int64_t leaves_;  ///< P.
  std::map<graph::ParameterId, Sum> sums_ = {};
  std::deque<graph::ParameterId> queue_;  ///< Reductions to issue, in the one global order.
};

}  // namespace heddle::program
