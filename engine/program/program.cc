#include "engine/program/program.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/compile.h>
#include <fmt/format.h>

#include "base/hash.h"
#include "engine/graph/operator.h"

namespace heddle::program {

namespace {

using Buffer = fmt::memory_buffer;

// Formats are compiled: a Program has some ten thousand instructions, and its text is hashed while
// a recovery waits.
template <typename Format, typename... A>
void Append(Buffer& out, const Format& format, A&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<A>(args)...);
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kLoad:
      return "load";
    case Code::kRun:
      return "run";
    case Code::kSend:
      return "send";
    case Code::kRecv:
      return "recv";
    case Code::kExchange:
      return "exchange";
    case Code::kGather:
      return "gather";
    case Code::kAwait:
      return "await";
    case Code::kFold:
      return "fold";
    case Code::kReduce:
      return "reduce";
    case Code::kVote:
      return "vote";
    case Code::kUpdate:
      return "update";
    case Code::kFree:
      return "free";
  }
  return "unknown";
}

template <typename T>
bool InRange(int64_t index, const std::vector<T>& list) {
  return index >= 0 && index < static_cast<int64_t>(list.size());
}

void AppendSlots(Buffer& out, std::string_view before, const std::vector<SlotId>& slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) {
      Append(out, FMT_COMPILE("{}p"), i == 0 ? before : ", ");
    } else {
      Append(out, FMT_COMPILE("{}%{}"), i == 0 ? before : ", ", slots[i]);
    }
  }
}

void AppendContributions(Buffer& out, const Instruction& instruction) {
  for (size_t i = 0; i < instruction.contributions.size(); ++i) {
    Append(out, FMT_COMPILE("{}"), i == 0 ? " from {" : ", {");
    const std::vector<TreeNode>& nodes = instruction.contributions[i];
    for (size_t n = 0; n < nodes.size(); ++n) {
      Append(out, FMT_COMPILE("{}{}:{}"), n == 0 ? "" : " ", nodes[n].level, nodes[n].index);
    }
    Append(out, FMT_COMPILE("}}"));
  }
}

// The first piece, which is most often the only one, is the parameter itself.
void AppendPiece(Buffer& out, int piece) {
  if (piece != 0) {
    Append(out, FMT_COMPILE(".{}"), piece);
  }
}

void AppendRanges(Buffer& out, std::string_view before, const std::vector<graph::Range>& ranges) {
  Append(out, FMT_COMPILE(" {}"), before);
  for (const graph::Range& range : ranges) {
    Append(out, FMT_COMPILE(" {}:{}"), range.begin, range.end);
  }
}

// What only members of a group, or of a plan that divides the optimizer, have.
void AppendGroup(Buffer& out, const Program& program) {
  for (const Piece& piece : program.pieces) {
    Append(out, FMT_COMPILE("piece p{}"), piece.parameter);
    AppendPiece(out, piece.index);
    Append(out, FMT_COMPILE(" {}"), heddle::ToString(piece.box));
    if (piece.kept) {
      Append(out, FMT_COMPILE(" keeps {}"), heddle::ToString(*piece.kept));
    }
    Append(out, FMT_COMPILE("\n"));
  }
  for (size_t i = 0; i < program.exchanges.size(); ++i) {
    const graph::Exchange& exchange = program.exchanges[i];
    Append(out, FMT_COMPILE("e{} {} t{} -> t{} dim {}"), i, graph::FormName(exchange.form),
           exchange.from, exchange.to, exchange.dim);
    AppendRanges(out, "sent", exchange.sent);
    AppendRanges(out, "received", exchange.received);
    Append(out, FMT_COMPILE("\n"));
  }
}

// What is said of each node is made once: every microbatch runs it again.
class NodeTexts {
 public:
  explicit NodeTexts(const graph::Graph& graph) : graph_(graph), texts_(graph.nodes.size()) {}

  const std::string& Of(graph::NodeId id) {
    std::string& text = texts_[static_cast<size_t>(id)];
    if (text.empty()) {
      const graph::Node& node = graph_.node(id);
      text = fmt::format(" {}{}", node.op->name(), node.attributes.ToString());
    }
    return text;
  }

 private:
  const graph::Graph& graph_;
  std::vector<std::string> texts_;
};

void AppendInstruction(Buffer& out,
                       size_t index,
                       const Instruction& instruction,
                       const graph::Graph& graph,
                       NodeTexts& nodes) {
  Append(out, FMT_COMPILE("{:4} {}"), index, CodeName(instruction.code));
  if (instruction.code == Code::kRun) {
    Append(out, FMT_COMPILE(" n{}"), instruction.node);
    if (InRange(instruction.node, graph.nodes)) {
      out.append(nodes.Of(instruction.node));
    }
  }
  if (instruction.microbatch >= 0) {
    Append(out, FMT_COMPILE(" m{}"), instruction.microbatch);
  }
  if (instruction.exchange >= 0) {
    Append(out, FMT_COMPILE(" e{}"), instruction.exchange);
  }
  if (instruction.parameter >= 0) {
    Append(out, FMT_COMPILE(" p{}"), instruction.parameter);
    AppendPiece(out, instruction.piece);
  }
  if (InRange(instruction.parameter, graph.parameters)) {
    Append(out, FMT_COMPILE(" {}"), graph.parameter(instruction.parameter).name);
  }
  AppendSlots(out, " ", instruction.inputs);
  AppendSlots(out, " -> ", instruction.outputs);
  if (instruction.peer >= 0) {
    Append(out, FMT_COMPILE(" peer {}"), instruction.peer);
  }
  if (instruction.tag != 0) {
    Append(out, FMT_COMPILE(" tag {:#x}"), instruction.tag);
  }
  for (size_t i = 0; i < instruction.group.size(); ++i) {
    Append(out, FMT_COMPILE("{}{}"), i == 0 ? " over " : ",", instruction.group[i]);
  }
  AppendContributions(out, instruction);
  for (size_t i = 0; i < instruction.rows.size(); ++i) {
    Append(out, FMT_COMPILE("{}{}"), i == 0 ? " rows " : ",", instruction.rows[i]);
  }
  if (instruction.parts != 1) {
    Append(out, FMT_COMPILE(" part {} of {}"), instruction.part, instruction.parts);
  }
  Append(out, FMT_COMPILE("\n"));
}

void AppendSlot(Buffer& out, size_t index, const Slot& slot, const graph::Graph& graph) {
  Append(out, FMT_COMPILE("%{} {} {}{}"), index,
         InRange(slot.tensor, graph.tensors) ? graph.tensor(slot.tensor).name : "?",
         DTypeName(slot.type.dtype), heddle::ToString(slot.type.shape));
  if (slot.microbatch >= 0) {
    Append(out, FMT_COMPILE(" m{}"), slot.microbatch);
  }
  Append(out, FMT_COMPILE("\n"));
}

}  // namespace

const Piece* FindPiece(const Program& program, graph::ParameterId parameter, int index) {
  const auto piece = std::ranges::find_if(program.pieces, [&](const Piece& one) {
    return one.parameter == parameter && one.index == index;
  });
  return piece == program.pieces.end() ? nullptr : &*piece;
}

const Box& KeptBox(const Piece& piece) {
  return piece.kept ? *piece.kept : piece.box;
}

Box HeldBox(const Program& program, const graph::Graph& graph, graph::ParameterId parameter) {
  std::optional<Box> held;
  for (const Piece& piece : program.pieces) {
    if (piece.parameter != parameter) {
      continue;
    }
    if (!held) {
      held = piece.box;
    }
    for (size_t d = 0; d < held->offset.size(); ++d) {
      const int64_t end =
          std::max(held->offset[d] + held->extent[d], piece.box.offset[d] + piece.box.extent[d]);
      held->offset[d] = std::min(held->offset[d], piece.box.offset[d]);
      held->extent[d] = end - held->offset[d];
    }
  }
  return held ? *held : WholeBox(graph.parameter(parameter).shape);
}

std::string ToString(const Program& program, const graph::Graph& graph) {
  Buffer out;
  Append(out, FMT_COMPILE("generation {} rank {} of {}, {}\nparameters"), program.generation,
         program.rank, program.workers,
         program.determinism == Determinism::kExact ? "exact" : "relaxed");
  for (const graph::ParameterId parameter : program.parameters) {
    Append(out, FMT_COMPILE(" {}"), parameter);
  }
  Append(out, FMT_COMPILE("\npeers"));
  for (const int peer : program.peers) {
    Append(out, FMT_COMPILE(" {}"), peer);
  }
  Append(out, FMT_COMPILE("\n"));
  AppendGroup(out, program);
  for (size_t i = 0; i < program.slots.size(); ++i) {
    AppendSlot(out, i, program.slots[i], graph);
  }
  NodeTexts nodes(graph);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    AppendInstruction(out, i, program.instructions[i], graph, nodes);
  }
  Append(out, FMT_COMPILE("vote at {}: norms"), program.vote_index);
  for (const VoteShare::Norm& norm : program.vote.norms) {
    Append(out, FMT_COMPILE(" p{}"), norm.parameter);
    AppendPiece(out, norm.piece);
    Append(out, FMT_COMPILE("=%{}"), norm.gradient);
  }
  Append(out, FMT_COMPILE("; losses"));
  for (const VoteShare::Loss& loss : program.vote.losses) {
    Append(out, FMT_COMPILE(" m{}=%{}"), loss.microbatch, loss.slot);
  }
  Append(out, FMT_COMPILE("\n"));
  return fmt::to_string(out);
}

uint64_t ProgramHash(const Program& program, const graph::Graph& graph) {
  Buffer out;
  const graph::AdamW& optimizer = graph.optimizer;
  // Hexadecimal floats keep every bit.
  Append(out, FMT_COMPILE("adamw {:a} {:a} {:a} {:a} {:a} compute {}\n"), optimizer.beta1,
         optimizer.beta2, optimizer.epsilon, optimizer.weight_decay, optimizer.max_gradient_norm,
         DTypeName(graph.compute));
  if (optimizer.slices != 1) {
    Append(out, FMT_COMPILE("slices {}\n"), optimizer.slices);
  }
  for (const graph::ParameterId id : program.parameters) {
    if (!InRange(id, graph.parameters)) {
      continue;
    }
    const graph::Parameter& parameter = graph.parameter(id);
    Append(out, FMT_COMPILE("p{} {} {} {} {:a} {}\n"), id, parameter.name,
           heddle::ToString(parameter.shape), static_cast<int>(parameter.initializer.kind),
           parameter.initializer.standard_deviation, parameter.decay);
  }
  const std::string text = ToString(program, graph);
  return Hash64(text, Hash64(std::string_view(out.data(), out.size())));
}

}  // namespace heddle::program
