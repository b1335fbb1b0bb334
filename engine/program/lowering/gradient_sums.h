/// \file
/// Adds up weight gradients on one worker during its schedule, and issues the reductions over the
/// holders of each piece of a parameter. All holders take part, also one that contributes nothing,
/// and also if every member of a group has computed the whole sum: members that compute unlike
/// would otherwise apply unlike bits, and their copies would drift apart. Small sums share a
/// collective (joint_sums.h), which is issued when the last of them is complete.
///
/// In an exact plan, the contribution of microbatch m to use u is leaf u * P + m of the reduction
/// tree, where P is the number of microbatches of the global batch rounded up to a power of two.
/// Each use keeps a binary counter: a new leaf is added to the partial sum on its left as long as
/// that is its sibling, so that at most log2(P) + 1 partial sums are live and exactly the nodes of
/// CoverRange remain. In a relaxed plan there is one partial sum, in order of arrival.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/lowering/program_builder.h"
#include "engine/program/lowering/stage_template.h"
#include "engine/program/pieces.h"

namespace heddle::program {

/// A parameter and the index of a piece of it.
using PieceKey = std::pair<graph::ParameterId, int>;

/// The gradient sums of one worker. Thread: one caller.
class GradientSums {
 public:
  /// `rank`: the worker's; `steps`: what it runs for each microbatch. Errors: kInvalidArgument (a
  /// relaxed plan has a stage that holds a parameter without a gradient of it).
  static Result<GradientSums> Create(const graph::Graph& graph,
                                     const GraphAnalysis& analysis,
                                     const Plan& plan,
                                     int rank,
                                     const StageTemplate& steps);

  /// Takes ownership of `slot`, the contribution of `microbatch` to `use` of a piece, and emits the
  /// additions and reductions whose operands are complete now.
  void Add(PieceKey piece, int use, int microbatch, SlotId slot, ProgramBuilder& out);

  /// Returns the summed gradients, after every contribution was added: of what this worker updates.
  std::map<PieceKey, SlotId> Finish(ProgramBuilder& out);

  /// Whether this worker reports the norm of the gradient that it has of the piece: if all holders
  /// have the same, the lowest of them does.
  bool Reports(PieceKey piece) const {
    const Sum& sum = sums_.at(piece);
    return !sum.rows.empty() || sum.piece.holders.front() == rank_;
  }

 private:
  struct Partial {
    TreeNode node = {};
    SlotId slot = -1;
  };
  struct Sum {
    HeldPiece piece = {};
    std::vector<std::vector<TreeNode>> contributions = {};  ///< Exact plan: by holder.
    std::map<int, std::vector<Partial>> partials = {};      ///< By use; relaxed: all under key 0.
    std::vector<graph::Range> rows = {};                    ///< By holder: KeptRows.
    int64_t missing = 0;  ///< Number of this worker's contributions that are still to come.
    SlotId gradient = -1;
  };

  GradientSums(const graph::Graph& graph, const Plan& plan, int rank);
  Status AddSums(const GraphAnalysis& analysis,
                 const Plan& plan,
                 graph::ParameterId parameter,
                 const std::map<PieceKey, int64_t>& contributed);
  std::vector<std::vector<TreeNode>> ContributionsOf(const GraphAnalysis& analysis,
                                                     const Plan& plan,
                                                     graph::ParameterId parameter,
                                                     const HeldPiece& piece) const;
  void FoldAll(Sum& sum, ProgramBuilder& out) const;
  void IssueReady(ProgramBuilder& out);
  Instruction Reduction(PieceKey key, Sum& sum, ProgramBuilder& out) const;

  const graph::Graph* graph_;
  int rank_;
  bool exact_;
  int64_t leaves_;  ///< Leaves per use, P.
  int last_microbatch_ =
      0;  ///< Before it no reduction is issued, also none without a contribution.
  std::map<PieceKey, Sum> sums_ = {};
  /// Reductions to issue, in the same order everywhere; those of an entry are one collective's.
  std::deque<std::vector<PieceKey>> queue_;
};

}  // namespace heddle::program
