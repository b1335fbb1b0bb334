#include "tests/engine_runtime/exchange/group_programs.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/graph/sharding/complete.h"

namespace heddle::runtime::testing {
namespace {

using graph::ExchangeForm;
using graph::ParameterId;
using graph::TensorId;
using program::Code;
using program::Instruction;
using program::SlotId;

using Whole = std::map<TensorId, TensorId>;  ///< By tensor: the one that every member has whole.

/// Adds the exchange that gives a tensor to every member whole, behind all others.
void MakeWhole(graph::ShardedGraph& sharded, TensorId id, Whole& whole) {
  const graph::Sharding sharding = sharded.shardings[static_cast<size_t>(id)];
  graph::Tensor tensor = sharded.graph.tensor(id);
  const int dim = std::max(sharding.dim, 0);
  const auto to = static_cast<TensorId>(sharded.graph.tensors.size());
  sharded.order.push_back({.exchange = static_cast<int>(sharded.exchanges.size())});
  sharded.exchanges.push_back(
      {.form = sharding.partial() ? ExchangeForm::kSum : ExchangeForm::kGather,
       .from = id,
       .to = to,
       .dim = dim,
       .sent = graph::RangesAlong(sharding, dim, tensor.type.shape, sharded.members),
       .received = graph::RangesAlong({}, dim, tensor.type.shape, sharded.members)});
  tensor.name += ".whole";
  sharded.graph.tensors.push_back(std::move(tensor));
  sharded.shardings.emplace_back();
  whole[id] = to;
}

/// Those that the Programs need whole: the loss, and gradients that are cut where their parameter
/// is not.
Whole MakeWhole(graph::ShardedGraph& sharded) {
  Whole whole;
  if (sharded.shardings[static_cast<size_t>(sharded.graph.loss)].partial()) {
    MakeWhole(sharded, sharded.graph.loss, whole);
  }
  const std::vector<graph::Parameter> parameters = sharded.graph.parameters;
  for (const graph::Parameter& parameter : parameters) {
    for (const TensorId gradient : parameter.gradients) {
      const auto kind = [&](TensorId id) {
        return sharded.shardings[static_cast<size_t>(id)].kind;
      };
      if (kind(parameter.compute) == graph::Placement::Kind::kReplicate &&
          kind(gradient) == graph::Placement::Kind::kShard) {
        MakeWhole(sharded, gradient, whole);
      }
    }
  }
  return whole;
}

/// Makes one member's Program.
class MemberProgram {
 public:
  MemberProgram(const graph::ShardedGraph& sharded,
                const Whole& whole,
                const graph::LocalGraph& local,
                const std::vector<int>& group,
                int position)
      : sharded_(sharded),
        whole_(whole),
        local_(local),
        graph_(local.graph),
        group_(group),
        position_(position) {
    program_.generation = 1;
    program_.rank = group[static_cast<size_t>(position)];
    program_.workers = static_cast<int>(group.size());
    program_.determinism = program::Determinism::kRelaxed;
    program_.exchanges = local.exchanges;
    for (int rank = 0; rank < program_.workers; ++rank) {
      if (rank != program_.rank) {
        program_.peers.push_back(rank);
      }
    }
  }

  program::Program Make(int microbatches) {
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      RunMicrobatch(microbatch);
    }
    for (size_t p = 0; p < graph_.parameters.size(); ++p) {
      Reduce(static_cast<ParameterId>(p));
    }
    FreeEarly();
    program_.vote_index = program_.instructions.size();
    Add({.code = Code::kVote});
    for (const auto& [parameter, slot] : sums_) {
      Add({.code = Code::kUpdate,
           .inputs = {slot},
           .parameter = parameter,
           .piece = PieceOf(parameter)});
    }
    return std::move(program_);
  }

 private:
  void Add(Instruction instruction) { program_.instructions.push_back(std::move(instruction)); }

  const graph::Sharding& ShardingOf(TensorId id) const {
    return sharded_.shardings[static_cast<size_t>(id)];
  }

  TensorId WholeOf(TensorId id) const {
    const auto found = whole_.find(id);
    return found == whole_.end() ? id : found->second;
  }

  SlotId NewSlot(TensorId id, int microbatch) {
    program_.slots.push_back(
        {.tensor = id, .microbatch = microbatch, .type = graph_.tensor(id).type});
    return static_cast<SlotId>(program_.slots.size()) - 1;
  }

  /// The slot of a tensor of this microbatch, which may be read from now on.
  SlotId Read(TensorId id) {
    if (graph_.tensor(id).kind == graph::TensorKind::kParameter) {
      return -1;
    }
    const SlotId slot = slots_.at(id);
    if (in_flight_.erase(slot) > 0) {
      Add({.code = Code::kAwait, .inputs = {slot}});
    }
    return slot;
  }

  SlotId Write(TensorId id, int microbatch) { return slots_[id] = NewSlot(id, microbatch); }

  void RunMicrobatch(int microbatch) {
    slots_.clear();
    for (const TensorId id : {graph_.tokens, graph_.targets}) {
      Add({.code = Code::kLoad, .microbatch = microbatch, .outputs = {Write(id, microbatch)}});
    }
    for (const graph::Step& step : local_.order) {
      if (step.node >= 0) {
        RunNode(step.node, microbatch);
      } else {
        MakeExchange(step.exchange, microbatch);
      }
    }
    if (position_ == 0) {
      const SlotId loss = Read(WholeOf(graph_.loss));
      program_.vote.losses.push_back({.microbatch = microbatch, .slot = loss});
      kept_.insert(loss);
    }
    for (size_t p = 0; p < graph_.parameters.size(); ++p) {
      for (const TensorId gradient : graph_.parameters[p].gradients) {
        Fold(static_cast<ParameterId>(p), WholeOf(gradient));
      }
    }
  }

  void RunNode(graph::NodeId id, int microbatch) {
    const graph::Node& node = graph_.node(id);
    Instruction run{.code = Code::kRun, .node = id, .microbatch = microbatch};
    for (const TensorId input : node.inputs) {
      run.inputs.push_back(Read(input));
    }
    for (const TensorId output : node.outputs) {
      run.outputs.push_back(Write(output, microbatch));
    }
    Add(std::move(run));
  }

  void MakeExchange(int index, int microbatch) {
    const graph::Exchange& exchange = program_.exchanges[static_cast<size_t>(index)];
    const auto own = static_cast<size_t>(position_);
    Instruction make{.code = Code::kExchange,
                     .microbatch = microbatch,
                     .tag = program::ExchangeTag(exchange.to, microbatch),
                     .exchange = index,
                     .group = group_};
    if (!exchange.sent[own].empty()) {
      make.inputs.push_back(Read(exchange.from));
    }
    if (!exchange.received[own].empty()) {
      make.outputs.push_back(Write(exchange.to, microbatch));
      if (exchange.form != ExchangeForm::kSlice && exchange.form != ExchangeForm::kFill) {
        in_flight_.insert(make.outputs[0]);
      }
    }
    Add(std::move(make));
  }

  /// Adds a use's gradient to those before it.
  void Fold(ParameterId parameter, TensorId gradient) {
    if (!slots_.contains(gradient)) {
      return;
    }
    const SlotId slot = Read(gradient);
    const auto [sum, first] = sums_.emplace(parameter, slot);
    if (!first) {
      Add({.code = Code::kFold, .inputs = {sum->second, slot}});
    }
  }

  /// The number of this member's box of a parameter.
  int PieceOf(ParameterId id) const {
    const std::vector<graph::Range>& held = ShardingOf(graph_.parameter(id).compute).held;
    const auto own = held.begin() + (held.empty() ? 0 : position_);
    return static_cast<int>(
        std::count_if(held.begin(), own, [](const graph::Range& range) { return !range.empty(); }));
  }

  void Reduce(ParameterId id) {
    const graph::Parameter& parameter = graph_.parameter(id);
    const std::optional<Box>& box = local_.boxes[static_cast<size_t>(parameter.compute)];
    const graph::Sharding& held = ShardingOf(parameter.compute);
    if (!box) {
      return;
    }
    program_.parameters.push_back(id);
    program_.pieces.push_back({.parameter = id, .index = PieceOf(id), .box = *box});
    bool partial = false;
    for (const TensorId gradient : parameter.gradients) {
      const graph::Sharding& sharding = ShardingOf(WholeOf(gradient));
      partial = partial || sharding.partial();
      HEDDLE_CHECK(sharding.partial() ? sharding.dim < 0 : Alike(sharding, held),
                   "'{}' is not cut as its parameter is", graph_.tensor(gradient).name);
    }
    HEDDLE_CHECK(!partial || held.kind == graph::Placement::Kind::kReplicate,
                 "addends of '{}', which is cut", parameter.name);
    if (partial) {
      // The whole's type: that of a member without addends is empty.
      SlotId sum = NewSlot(parameter.gradients[0], -1);
      program_.slots.back().type = {.dtype = graph_.master_dtype(), .shape = parameter.shape};
      std::vector<int> ranks = group_;
      std::ranges::sort(ranks);
      Instruction reduce{.code = Code::kReduce,
                         .outputs = {sum},
                         .tag = program::ReduceTag(id),
                         .parameter = id,
                         .group = ranks};
      if (const auto found = sums_.find(id); found != sums_.end()) {
        reduce.inputs = {found->second};
      }
      Add(std::move(reduce));
      sums_[id] = sum;
    }
    kept_.insert(sums_.at(id));
    if (held.kind != graph::Placement::Kind::kReplicate || position_ == 0) {
      program_.vote.norms.push_back(
          {.parameter = id, .gradient = sums_.at(id), .piece = PieceOf(id)});
    }
  }

  /// Frees every value behind its last reader.
  void FreeEarly() {
    std::map<SlotId, size_t> last;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      for (const SlotId slot : program_.instructions[i].inputs) {
        last[slot] = i;
      }
    }
    std::vector<Instruction> freed;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const std::vector<SlotId> inputs = program_.instructions[i].inputs;
      freed.push_back(std::move(program_.instructions[i]));
      for (const SlotId slot : std::set<SlotId>(inputs.begin(), inputs.end())) {
        if (slot >= 0 && last[slot] == i && !kept_.contains(slot)) {
          freed.push_back({.code = Code::kFree, .inputs = {slot}});
        }
      }
    }
    program_.instructions = std::move(freed);
  }

  const graph::ShardedGraph& sharded_;
  const Whole& whole_;
  const graph::LocalGraph& local_;
  const graph::Graph& graph_;
  const std::vector<int>& group_;
  const int position_;
  program::Program program_;
  std::map<TensorId, SlotId> slots_;    ///< Of the microbatch.
  std::set<SlotId> in_flight_;          ///< Outputs of exchanges that nobody has awaited.
  std::set<SlotId> kept_;               ///< Until the step ends.
  std::map<ParameterId, SlotId> sums_;  ///< Of gradients.
};

}  // namespace

GroupPrograms ProgramsOf(const graph::Graph& graph,
                         const graph::Layout& layout,
                         const std::vector<int>& group,
                         int microbatches) {
  auto sharded = graph::Complete(graph, layout);
  HEDDLE_CHECK(sharded.ok(), "{}", sharded.status().ToString());
  const Whole whole = MakeWhole(*sharded);
  GroupPrograms made;
  for (int position = 0; position < static_cast<int>(group.size()); ++position) {
    made.members.push_back(Localise(*sharded, position));
    const graph::LocalGraph& local = made.members.back();
    made.programs.push_back(
        MemberProgram(*sharded, whole, local, group, position).Make(microbatches));
  }
  return made;
}

}  // namespace heddle::runtime::testing
