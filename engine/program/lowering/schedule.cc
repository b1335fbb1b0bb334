#include "engine/program/lowering/schedule.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/program/slices.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::ParameterId;
using graph::TensorId;

namespace {

class Stamper {
 public:
  explicit Stamper(ScheduleInput input)
      : graph_(input.graph),
        analysis_(input.analysis),
        plan_(input.plan),
        position_(PositionOf(input.plan, input.rank)),
        template_(std::move(input.steps)),
        sums_(std::move(input.sums)),
        out_(Program{.generation = input.plan.generation,
                     .rank = input.rank,
                     .workers = static_cast<int>(input.plan.workers.size()),
                     .determinism = input.plan.determinism}) {}

  Program Run() && {
    if (position_.pipeline >= 0) {
      AddParameters(out_.program());
      Gather();
      RunSchedule();
    }
    Finish();
    return std::move(out_.program());
  }

 private:
  const Pipeline& pipeline() const {
    return plan_.pipelines[static_cast<size_t>(position_.pipeline)];
  }
  const Stage& stage() const { return pipeline().stages[static_cast<size_t>(position_.stage)]; }

  // All gathers in the order in which the model uses the parameters, which is the same everywhere.
  void Gather() {
    std::vector<std::pair<int, const Piece*>> order;
    for (const Piece& piece : out_.program().pieces) {
      if (piece.kept) {
        order.emplace_back(
            analysis_.parameter_segments[static_cast<size_t>(piece.parameter)].front(), &piece);
      }
    }
    std::ranges::stable_sort(order, {}, &std::pair<int, const Piece*>::first);
    for (const auto& [segment, piece] : order) {
      const HeldPiece& held = divided_.at({piece->parameter, piece->index});
      Instruction gather{.code = Code::kGather,
                         .tag = GatherTag(piece->parameter, piece->index),
                         .parameter = piece->parameter,
                         .piece = piece->index,
                         .group = held.holders};
      for (const graph::Range& rows : KeptRows(graph_, plan_, held)) {
        gather.rows.push_back(rows.end - rows.begin);
      }
      out_.Emit(std::move(gather));
      stale_.insert(piece->parameter);
    }
  }

  // Before the first instruction that reads a parameter whose compute copy is gathered.
  void AwaitParameter(TensorId tensor) {
    const graph::Tensor& read = graph_.tensor(tensor);
    if (read.kind == graph::TensorKind::kParameter && stale_.erase(read.parameter) > 0) {
      out_.Emit({.code = Code::kAwait, .parameter = read.parameter});
    }
  }

  // 1F1B: some forwards first, then one backward for each forward.
  void RunSchedule() {
    const int count = pipeline().microbatches;
    const int warm_up = pipeline().WarmUp(static_cast<size_t>(position_.stage));
    values_.assign(static_cast<size_t>(count), {});
    for (int i = 0; i < warm_up; ++i) {
      Forward(i);
    }
    for (int i = 0; i < count; ++i) {
      if (i + warm_up < count) {
        Forward(i + warm_up);
      }
      Backward(i);
    }
  }

  void Forward(int number) {
    values_[static_cast<size_t>(number)].assign(template_.values.size(), -1);
    Emit(template_.forward, number);
    if (template_.loss >= 0) {
      const SlotId slot = values_[static_cast<size_t>(number)][static_cast<size_t>(template_.loss)];
      out_.program().vote.losses.push_back(
          {.microbatch = pipeline().first_microbatch + number, .slot = slot});
    }
  }

  void Backward(int number) {
    Emit(template_.backward, number);
    values_[static_cast<size_t>(number)] = {};
  }

  void Emit(const std::vector<StageStep>& steps, int number) {
    std::vector<SlotId>& slots = values_[static_cast<size_t>(number)];
    const int microbatch = pipeline().first_microbatch + number;
    for (const StageStep& step : steps) {
      if (step.code == Code::kRun) {
        for (const TensorId input : graph_.node(step.node).inputs) {
          AwaitParameter(input);
        }
      } else if (step.code == Code::kExchange) {
        AwaitParameter(template_.exchanges[static_cast<size_t>(step.exchange)].from);
      }
      Instruction instruction{.code = step.code,
                              .node = step.node,
                              .microbatch = step.code == Code::kAwait ? -1 : microbatch,
                              .peer = step.peer,
                              .exchange = step.exchange};
      for (const int value : step.inputs) {
        instruction.inputs.push_back(value < 0 ? -1 : slots[static_cast<size_t>(value)]);
      }
      for (const int value : step.outputs) {
        const TensorId tensor = template_.values[static_cast<size_t>(value)];
        slots[static_cast<size_t>(value)] =
            out_.NewSlot(tensor, microbatch, graph_.tensor(tensor).type);
        instruction.outputs.push_back(slots[static_cast<size_t>(value)]);
      }
      if (step.code == Code::kSend || step.code == Code::kRecv) {
        instruction.tag = MessageTag(step.message, microbatch);
        peers_.insert(step.peer);
      } else if (step.code == Code::kExchange) {
        const graph::Exchange& exchange = template_.exchanges[static_cast<size_t>(step.exchange)];
        instruction.tag = ExchangeTag(exchange.to, microbatch, step.again);
        instruction.group = stage().group;
      }
      out_.Emit(std::move(instruction));
      for (const int value : step.frees) {
        out_.Free(slots[static_cast<size_t>(value)]);
      }
      for (const StageContribution& one : step.contributes) {
        sums_.Add({one.parameter, one.piece}, one.use, microbatch,
                  slots[static_cast<size_t>(one.value)], out_);
      }
    }
  }

  void Finish() {
    const std::map<PieceKey, SlotId> gradients = sums_.Finish(out_);
    Program& program = out_.program();
    for (const auto& [key, slot] : gradients) {
      if (sums_.Reports(key)) {
        program.vote.norms.push_back(
            {.parameter = key.first, .gradient = slot, .piece = key.second});
      }
    }
    // What a member without a share of the work does not read is gathered all the same: all holders
    // go on from the same state.
    for (const ParameterId parameter : stale_) {
      out_.Emit({.code = Code::kAwait, .parameter = parameter});
    }
    program.vote_index = program.instructions.size();
    out_.Emit({.code = Code::kVote});
    for (const VoteShare::Loss& loss : program.vote.losses) {
      out_.Free(loss.slot);
    }
    for (const auto& [key, slot] : gradients) {
      out_.Emit(
          {.code = Code::kUpdate, .inputs = {slot}, .parameter = key.first, .piece = key.second});
      out_.Free(slot);
    }
    FinishHeader(program);
  }

  void FinishHeader(Program& program) {
    program.exchanges = std::move(template_.exchanges);
    for (const Instruction& instruction : program.instructions) {
      peers_.insert(instruction.group.begin(), instruction.group.end());
    }
    peers_.erase(program.rank);
    program.peers.assign(peers_.begin(), peers_.end());
  }

  void AddParameters(Program& program) {
    std::set<ParameterId> held;
    for (int segment = stage().first_segment; segment < stage().last_segment; ++segment) {
      const auto& list = analysis_.segment_parameters[static_cast<size_t>(segment)];
      held.insert(list.begin(), list.end());
    }
    if (stage().layout < 0 && !plan_.divides_optimizer) {
      program.parameters.assign(held.begin(), held.end());
      return;
    }
    for (const ParameterId parameter : held) {
      const std::vector<HeldPiece> pieces = PiecesOf(
          graph_, plan_, parameter, analysis_.parameter_segments[static_cast<size_t>(parameter)]);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const std::vector<int>& holders = pieces[i].holders;
        const auto own = std::ranges::lower_bound(holders, program.rank);
        if (own == holders.end() || *own != program.rank) {
          continue;
        }
        Piece piece{.parameter = parameter, .index = static_cast<int>(i), .box = pieces[i].box};
        const std::vector<graph::Range> rows = KeptRows(graph_, plan_, pieces[i]);
        if (!rows.empty()) {
          piece.kept = RowsOf(piece.box, rows[static_cast<size_t>(own - holders.begin())]);
          divided_.emplace(std::pair(parameter, piece.index), pieces[i]);
        }
        program.pieces.push_back(std::move(piece));
      }
      if (!program.pieces.empty() && program.pieces.back().parameter == parameter) {
        program.parameters.push_back(parameter);
      }
    }
  }

  const graph::Graph& graph_;
  const GraphAnalysis& analysis_;
  const Plan& plan_;
  const Position position_;
  StageTemplate template_;
  GradientSums sums_;
  ProgramBuilder out_;
  std::vector<std::vector<SlotId>> values_;  ///< Slot by microbatch of the pipeline, by value.
  std::set<int> peers_;
  std::map<PieceKey, HeldPiece> divided_;  ///< Those of which this worker keeps some rows.
  std::set<graph::ParameterId> stale_;     ///< Those whose gathers are not awaited yet.
};

}  // namespace

Program StampSchedule(ScheduleInput input) {
  return Stamper(std::move(input)).Run();
}

}  // namespace heddle::program
