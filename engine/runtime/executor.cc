#include "engine/runtime/executor.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/check.h"
#include "base/fail_point.h"
#include "base/thread.h"
#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device/guarded.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/exchange/exchange_layout.h"
#include "engine/runtime/exchange/exchanges.h"
#include "engine/runtime/exchange/gathers.h"
#include "engine/runtime/exchange/reductions.h"
#include "engine/runtime/kernel.h"
#include "engine/runtime/messages.h"
#include "engine/runtime/parameter_tensors.h"
#include "engine/runtime/vote_stats.h"

namespace heddle::runtime {
namespace {

using program::Code;
using program::Instruction;
using program::SlotId;

// Receives posted ahead of the instruction that waits for them: two hide a message behind compute
// and bound the memory of early arrivals.
constexpr size_t kReceivesAhead = 2;

// What f returns, which waits for other workers. `progress` null: nobody is told.
template <typename F>
auto WaitingIn(Progress* progress, F f) {
  std::optional<Progress::Wait> wait;
  if (progress != nullptr) {
    wait.emplace(*progress);
  }
  return f();
}

/// Copies what `view.contiguous()` became back, where it is a copy. Each tensor of a piece may be a view
/// while another is not: a piece's own master belongs to a part of a wider compute copy.
void PutBack(const at::Tensor& packed, at::Tensor& view) {
  if (!view.is_contiguous()) {
    view.copy_(packed);
  }
}

/// AdamW on views of a parameter's tensors. Each holder of a piece computes the same bits, whatever
/// else it holds.
void UpdatePiece(ParameterState::Kept& piece, const at::Tensor& gradient, const AdamWStep& step) {
  const bool has_copy = piece.compute.data_ptr() != piece.master.data_ptr();
  ParameterState::Kept packed{.box = piece.box,
                              .master = piece.master.contiguous(),
                              .exp_avg = piece.exp_avg.contiguous(),
                              .exp_avg_sq = piece.exp_avg_sq.contiguous(),
                              .compute = {}};
  packed.compute = has_copy ? piece.compute.contiguous() : packed.master;
  AdamWUpdate(packed.master, packed.exp_avg, packed.exp_avg_sq, gradient, packed.compute, step);
  PutBack(packed.master, piece.master);
  PutBack(packed.exp_avg, piece.exp_avg);
  PutBack(packed.exp_avg_sq, piece.exp_avg_sq);
  if (has_copy) {
    PutBack(packed.compute, piece.compute);
  }
}

// A copy that compute sees from now on.
at::Tensor OnDevice(Device& device, at::Tensor host) {
  Copied copied = device.Upload(std::move(host));
  device.Await(copied.mark);
  return std::move(copied.tensor);
}

/// The part of the state that an update changes.
ParameterState::Kept KeptOf(const Instruction& instruction,
                            const program::Program& program,
                            const ParameterState& state) {
  const program::Piece* const piece =
      program::FindPiece(program, instruction.parameter, instruction.piece);
  return piece != nullptr ? state.Part(piece->parameter, program::KeptBox(*piece))
                          : state.held(instruction.parameter).kept.front();
}

bool IsFloating(DType dtype) {
  return dtype != DType::kI32 && dtype != DType::kI64 && dtype != DType::kU8;
}

/// The values of a step by slot, and their bytes.
class Values {
 public:
  /// `cap_bytes`: the most bytes of live values; 0: no limit.
  Values(const program::Program& program, int64_t cap_bytes)
      : slots_(program.slots),
        cap_bytes_(cap_bytes),
        values_(program.slots.size()) {}

  const program::Slot& SlotOf(SlotId slot) const { return slots_[static_cast<size_t>(slot)]; }
  const at::Tensor& Get(SlotId slot) const {
    const at::Tensor& value = values_[static_cast<size_t>(slot)];
    HEDDLE_CHECK(value.defined(), "slot {} is read before it is written or after it is freed",
                 slot);
    return value;
  }
  Status Put(SlotId slot, at::Tensor value) {
    live_bytes_ += SlotOf(slot).type.bytes();
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    Replace(slot, std::move(value));
    if (cap_bytes_ > 0 && live_bytes_ > cap_bytes_) {
      return ResourceExhaustedError("values of {} bytes exceed the worker's memory cap of {} bytes",
                                    live_bytes_, cap_bytes_);
    }
    return Status::Ok();
  }
  /// Puts another tensor of the same bytes in the place of a value.
  void Replace(SlotId slot, at::Tensor value) {
    values_[static_cast<size_t>(slot)] = std::move(value);
  }
  void Free(SlotId slot) {
    live_bytes_ -= SlotOf(slot).type.bytes();
    values_[static_cast<size_t>(slot)].reset();
  }
  void Clear() {
    for (at::Tensor& value : values_) {
      value.reset();
    }
    live_bytes_ = peak_bytes_ = 0;
  }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  const std::vector<program::Slot>& slots_;
  const int64_t cap_bytes_;
  std::vector<at::Tensor> values_;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace

class Executor::Impl {
 public:
  explicit Impl(ExecutorOptions options)
      : options_(std::move(options)),
        program_(*options_.program),
        device_(*options_.device),
        trains_(!options_.graph->parameters.empty() &&
                !options_.graph->parameters[0].gradients.empty()),
        values_(program_, options_.memory_cap_bytes),
        messages_(options_.group, device_, options_.shared, options_.direct),
        exchanges_(options_.group,
                   device_,
                   [this](const graph::TensorType& type) { return SharedBuffer(type); }),
        gathers_(options_.group,
                 device_,
                 [this](const graph::TensorType& type) { return SharedBuffer(type); }),
        reductions_(program_,
                    options_.graph->master_dtype(),
                    options_.group,
                    device_,
                    [this](const graph::TensorType& type) { return SharedBuffer(type); }) {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (program_.instructions[i].code == Code::kRecv) {
        receives_.push_back(i);
      }
    }
    for (const graph::Parameter& parameter : options_.graph->parameters) {
      elements_.push_back(ElementCount(parameter.shape));
    }
    HEDDLE_CHECK(options_.group != nullptr || program_.workers == 1,
                 "a program of several workers needs a group");
  }
  // What is queued still reads the graph.
  ~Impl() { device_.Drain(After(kLongestWait)).IgnoreError("nobody waits for its results"); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status ComputeGradients(int64_t step, int64_t first_sample) {
    const c10::InferenceMode inference;
    Reset();
    context_ = {.seed = options_.seed, .step = step, .first_sample = first_sample};
    injects_nan_ = trains_ && InjectsNaN(step);
    device_.clock().WaitFor(Now());
    Status status;
    for (size_t i = 0; i < program_.vote_index && status.ok(); ++i) {
      status = Guarded([&] { return Execute(program_.instructions[i], i); });
    }
    const Time begun = Now();
    const Status reduced = WaitingIn(options_.progress, [&] { return reductions_.Drain(); });
    figures_.waiting_seconds += Seconds(Now() - begun);
    if (status.ok()) {
      status = reduced;
    }
    if (status.ok()) {
      status = Guarded([&] {
        for (const SlotId slot : sums_) {
          values_.Replace(slot, OnDevice(device_, values_.Get(slot)));
        }
        return Status::Ok();
      });
    }
    if (status.ok()) {
      status = WaitingIn(options_.progress, [&] { return messages_.FinishSends(); });
    }
    if (status.ok()) {
      status = WaitingIn(options_.progress, [&] { return exchanges_.Finish(); });
    }
    if (status.ok()) {
      status = WaitingIn(options_.progress, [&] { return gathers_.Finish(); });
    }
    if (!status.ok()) {
      messages_.Abandon(status);
      exchanges_.Abandon(status);
      gathers_.Abandon(status);
    }
    figures_.busy_seconds = Seconds(device_.clock().TakeBusy());
    figures_.peak_bytes = values_.peak_bytes();
    pending_step_ = status.ok() ? step : 0;
    return status;
  }

  Result<VoteOutcome> Vote(int64_t step, const VoteFlags& flags) {
    const c10::InferenceMode inference;
    Result<VoteRecord> mine = Guarded([&] { return OwnRecord(step, flags); });
    if (!mine.ok()) {
      messages_.Abandon(mine.status());  // The others wait for this worker's vote.
      return mine.status();
    }
    figures_.busy_seconds += Seconds(device_.clock().TakeBusy());
    std::vector<VoteRecord> records;
    if (program_.workers == 1) {
      records.push_back(*std::move(mine));
    } else {
      // One tag a step parity: a worker may already vote for the next step while another still
      // reads this one's.
      const comm::CollectiveOptions vote{
          .group = {}, .tag = static_cast<uint64_t>(step), .deadline = {}};
      FailPoint("vote.ready");
      HEDDLE_ASSIGN_OR_RETURN(const auto all, WaitingIn(options_.progress, [&] {
                                return options_.group->AllGatherBytes(EncodeVote(*mine), vote);
                              }));
      FailPoint("vote.known");
      for (const Bytes& bytes : all) {
        HEDDLE_ASSIGN_OR_RETURN(auto record, DecodeVote(bytes));
        records.push_back(std::move(record));
      }
    }
    return DecideVote(records, trains_ ? elements_ : std::vector<int64_t>(), options_.microbatches);
  }

  void Apply(int64_t step, double norm, double learning_rate) {
    const c10::InferenceMode inference;
    HEDDLE_CHECK(pending_step_ == step, "step {} is not pending, {} is", step, pending_step_);
    const graph::AdamW& adamw = options_.graph->optimizer;
    const double clip = adamw.max_gradient_norm > 0 && norm > adamw.max_gradient_norm
                            ? adamw.max_gradient_norm / (norm + 1e-6)
                            : 1;
    for (const program::Piece& piece : program_.pieces) {
      if (piece.kept) {
        options_.state->SetGathered(piece.parameter, false);
      }
    }
    for (size_t i = program_.vote_index + 1; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (instruction.code == Code::kFree) {
        values_.Free(instruction.inputs[0]);
        continue;
      }
      const bool decay = options_.graph->parameter(instruction.parameter).decay;
      if (options_.before_update) {
        options_.before_update(instruction.parameter);
      }
      const AdamWStep update{.learning_rate = learning_rate,
                             .clip_factor = clip,
                             .step = step,
                             .beta1 = adamw.beta1,
                             .beta2 = adamw.beta2,
                             .epsilon = adamw.epsilon,
                             .weight_decay = decay ? adamw.weight_decay : 0};
      device_.Update([kept = KeptOf(instruction, program_, *options_.state),
                      gradient = values_.Get(instruction.inputs[0]),
                      update]() mutable { UpdatePiece(kept, gradient, update); });
    }
    figures_.busy_seconds += Seconds(device_.clock().TakeBusy());
    pending_step_ = 0;
  }

  int64_t pending_step() const { return pending_step_; }
  const StepStats& figures() const { return figures_; }

 private:
  void Reset() {
    values_.Clear();
    messages_.Clear();
    sums_.clear();
    next_receive_ = 0;
    pending_step_ = 0;
    figures_ = {};
  }

  Status Execute(const Instruction& instruction, size_t index) {
    PostReceives(index);
    switch (instruction.code) {
      case Code::kLoad:
        return Load(instruction);
      case Code::kRun:
        return Run(instruction);
      case Code::kSend:
        return messages_.Send(instruction.peer, instruction.tag, values_.Get(instruction.inputs[0]),
                              values_.SlotOf(instruction.inputs[0]).type);
      case Code::kRecv:
        return Recv(instruction, index);
      case Code::kExchange:
        return Exchange(instruction, index);
      case Code::kAwait:
        return instruction.parameter >= 0 ? AwaitGathers(instruction.parameter)
                                          : Await(instruction.inputs[0]);
      case Code::kFold:
        device_.Update(
            [left = values_.Get(instruction.inputs[0]),
             right = values_.Get(instruction.inputs[1])]() mutable { FoldInto(left, right); });
        return Status::Ok();
      case Code::kReduce:
        return Reduce(instruction);
      case Code::kGather:
        Gather(instruction);
        return Status::Ok();
      case Code::kFree:
        values_.Free(instruction.inputs[0]);
        return Status::Ok();
      case Code::kVote:
      case Code::kUpdate:
        break;
    }
    return InternalError("instruction {} does not belong before the vote", index);
  }

  Status Load(const Instruction& instruction) {
    const SlotId slot = instruction.outputs[0];
    const graph::TensorType& type = values_.SlotOf(slot).type;
    const bool wants_tokens = values_.SlotOf(slot).tensor == options_.graph->tokens;
    const auto batch = static_cast<size_t>(type.shape[0]);
    const auto length = static_cast<size_t>(type.shape[1]);
    std::vector<int32_t> tokens(batch * length);
    std::vector<int32_t> targets(batch * length);
    const int64_t first = SampleOf(instruction.microbatch);
    for (size_t b = 0; b < batch; ++b) {
      HEDDLE_RETURN_IF_ERROR(options_.read_sample(first + static_cast<int64_t>(b),
                                                  std::span(tokens).subspan(b * length, length),
                                                  std::span(targets).subspan(b * length, length)));
    }
    at::Tensor host = device_.HostBuffer(type);
    const std::vector<int32_t>& source = wants_tokens ? tokens : targets;
    std::ranges::copy(std::as_bytes(std::span(source)), BytesOf(host).begin());
    return values_.Put(slot, OnDevice(device_, std::move(host)));
  }

  /// Memory of the host in which collectives run without copies, where there is such memory.
  at::Tensor SharedBuffer(const graph::TensorType& type) {
    return options_.shared != nullptr ? options_.shared->Empty(type) : device_.HostBuffer(type);
  }

  void Gather(const Instruction& instruction) {
    const graph::ParameterId parameter = instruction.parameter;
    if (options_.state->IsGathered(parameter)) {
      return;
    }
    const Box& piece = FindPiece(program_, instruction.parameter, instruction.piece)->box;
    const ParameterState::Held& held = options_.state->held(parameter);
    at::Tensor whole = held.compute;
    for (size_t d = 0; d < piece.extent.size(); ++d) {
      whole = whole.narrow(static_cast<int64_t>(d), piece.offset[d] - held.box.offset[d],
                           piece.extent[d]);
    }
    const graph::TensorId compute = options_.graph->parameter(parameter).compute;
    gathers_.Begin(
        {.parameter = parameter,
         .whole = std::move(whole),
         .type = {.dtype = options_.graph->tensor(compute).type.dtype, .shape = piece.extent},
         .group = instruction.group,
         .rows = instruction.rows,
         .position = static_cast<int>(std::ranges::find(instruction.group, program_.rank) -
                                      instruction.group.begin()),
         .tag = instruction.tag});
  }

  Status AwaitGathers(graph::ParameterId parameter) {
    if (options_.state->IsGathered(parameter)) {
      return Status::Ok();
    }
    const Time begun = Now();
    HEDDLE_ASSIGN_OR_RETURN(
        const Time ended, WaitingIn(options_.progress, [&] { return gathers_.Await(parameter); }));
    figures_.waiting_seconds += Seconds(Now() - begun);
    device_.clock().WaitFor(ended);
    options_.state->SetGathered(parameter, true);
    return Status::Ok();
  }

  int64_t SampleOf(int microbatch) const {
    const int64_t size = options_.graph->tensor(options_.graph->tokens).type.shape[0];
    return context_.first_sample + microbatch * size;
  }

  Status Run(const Instruction& instruction) {
    const graph::Node& node = options_.graph->node(instruction.node);
    const Kernel kernel = KernelOf(node);
    std::vector<at::Tensor> inputs;
    inputs.reserve(node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(Read(node.inputs[i], instruction.inputs[i]));
    }
    Device::OutputTypes types;
    for (const graph::TensorId output : node.outputs) {
      types.push_back(&options_.graph->tensor(output).type);
    }
    const bool inject = injects_nan_ && IsFloating(types[0]->dtype);
    injects_nan_ = injects_nan_ && !inject;
    KernelContext context = context_;
    context.first_sample = SampleOf(instruction.microbatch);
    std::vector<at::Tensor> outputs = device_.Compute(
        [kernel, &node, inputs = std::move(inputs), context, inject] {
          std::vector<at::Tensor> computed = kernel(node, inputs, context);
          if (inject) {  // Not in place: an output may lie in a parameter.
            computed[0] = at::full_like(computed[0], std::numeric_limits<double>::quiet_NaN());
          }
          return computed;
        },
        types);
    HEDDLE_CHECK(outputs.size() == node.outputs.size(), "kernel of {} gave {} outputs",
                 node.op->name(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (instruction.outputs[i] >= 0) {
        HEDDLE_RETURN_IF_ERROR(values_.Put(instruction.outputs[i], std::move(outputs[i])));
      }
    }
    return Status::Ok();
  }

  /// A parameter, or the value in `slot`.
  const at::Tensor& Read(graph::TensorId id, SlotId slot) const {
    const graph::Tensor& tensor = options_.graph->tensor(id);
    return tensor.kind == graph::TensorKind::kParameter
               ? options_.state->held(tensor.parameter).compute
               : values_.Get(slot);
  }

  Kernel KernelOf(const graph::Node& node) {
    Kernel& kernel = kernels_[node.op];
    if (kernel == nullptr) {
      kernel = FindKernel(node.op->name(), device_.type());
      HEDDLE_CHECK(kernel != nullptr, "operator {} has no kernel", node.op->name());
    }
    return kernel;
  }

  void PostReceives(size_t index) {
    while (next_receive_ < receives_.size() &&
           (receives_[next_receive_] <= index || messages_.posted() < kReceivesAhead)) {
      const size_t at = receives_[next_receive_++];
      const Instruction& receive = program_.instructions[at];
      messages_.Post(at, receive.peer, receive.tag, values_.SlotOf(receive.outputs[0]).type);
    }
  }

  Status Recv(const Instruction& instruction, size_t index) {
    const Time begun = Now();
    HEDDLE_ASSIGN_OR_RETURN(Messages::Received received,
                            WaitingIn(options_.progress, [&] { return messages_.Receive(index); }));
    figures_.waiting_seconds += Seconds(Now() - begun);
    device_.clock().WaitFor(received.arrived);
    return values_.Put(instruction.outputs[0], received.on_device
                                                   ? std::move(received.tensor)
                                                   : OnDevice(device_, std::move(received.tensor)));
  }

  Status Exchange(const Instruction& instruction, size_t index) {
    const graph::Exchange& exchange = program_.exchanges[static_cast<size_t>(instruction.exchange)];
    const auto own = std::ranges::find(instruction.group, program_.rank);
    HEDDLE_CHECK(own != instruction.group.end() && exchange.sent.size() == instruction.group.size(),
                 "instruction {}: an exchange of {} among {}", index, exchange.sent.size(),
                 instruction.group.size());
    const ExchangePart part{.exchange = &exchange,
                            .group = instruction.group,
                            .position = static_cast<int>(own - instruction.group.begin()),
                            .tag = instruction.tag,
                            .value = instruction.inputs.empty()
                                         ? at::Tensor()
                                         : Read(exchange.from, instruction.inputs[0]),
                            .to = options_.graph->tensor(exchange.to).type};
    const bool alone =
        exchange.form == graph::ExchangeForm::kSlice || exchange.form == graph::ExchangeForm::kFill;
    if (instruction.outputs.empty()) {
      if (!alone) {
        exchanges_.Begin(program_.slots.size() + index, part);
      }
      return Status::Ok();
    }
    const SlotId slot = instruction.outputs[0];
    return values_.Put(
        slot, alone ? MakeAlone(device_, part) : exchanges_.Begin(static_cast<size_t>(slot), part));
  }

  Status Await(SlotId slot) {
    const Time begun = Now();
    HEDDLE_ASSIGN_OR_RETURN(const Time ended, WaitingIn(options_.progress, [&] {
                              return exchanges_.Await(static_cast<size_t>(slot));
                            }));
    figures_.waiting_seconds += Seconds(Now() - begun);
    device_.clock().WaitFor(ended);
    values_.Replace(slot, OnDevice(device_, values_.Get(slot)));
    return Status::Ok();
  }

  Status Reduce(const Instruction& instruction) {
    std::vector<at::Tensor> inputs;
    for (const SlotId input : instruction.inputs) {
      inputs.push_back(values_.Get(input));
    }
    if (instruction.outputs.empty()) {
      reductions_.Begin(instruction, inputs, nullptr);
      return Status::Ok();
    }
    // Nothing reads it before all sums are complete.
    const SlotId slot = instruction.outputs[0];
    Reductions::Output sum = reductions_.Begin(instruction, inputs, &values_.SlotOf(slot).type);
    if (sum.on_device) {
      ++figures_.device_sums;
    } else {
      sums_.push_back(slot);
    }
    return values_.Put(slot, std::move(sum.tensor));
  }

  Result<VoteRecord> OwnRecord(int64_t step, const VoteFlags& flags) {
    std::vector<NormSlice> slices;
    for (const program::VoteShare::Norm& norm : program_.vote.norms) {
      AddNormSlices(*options_.graph, program_, norm, values_.Get(norm.gradient), slices);
    }
    std::vector<at::Tensor> gradients;
    for (const NormSlice& slice : slices) {
      gradients.push_back(slice.gradient);
    }
    std::vector<at::Tensor> losses;
    for (const auto& loss : program_.vote.losses) {
      losses.push_back(values_.Get(loss.slot));
    }
    HEDDLE_ASSIGN_OR_RETURN(const VoteStats figures, ReadVoteStats(device_, gradients, losses));
    VoteRecord record{.step = step, .flags = flags, .norms = {}, .losses = {}};
    for (size_t i = 0; i < gradients.size(); ++i) {
      record.norms.push_back({.parameter = slices[i].parameter,
                              .leaf = slices[i].leaf,
                              .elements = gradients[i].numel(),
                              .sum_of_squares = figures.sums_of_squares[i]});
    }
    for (size_t i = 0; i < losses.size(); ++i) {
      record.losses.push_back(
          {.microbatch = program_.vote.losses[i].microbatch, .loss = figures.losses[i]});
    }
    return record;
  }

  const ExecutorOptions options_;
  const program::Program& program_;
  Device& device_;
  const bool trains_;
  Values values_;
  std::vector<size_t> receives_;  // Positions of kRecv, ascending.
  std::map<const graph::Operator*, Kernel> kernels_;

  std::vector<int64_t> elements_;  // By parameter, of the whole.
  Messages messages_;              // Receives by instruction.
  Exchanges exchanges_;            // By their output's slot.
  Gathers gathers_;
  std::vector<SlotId> sums_;  // What the step has reduced in the host's memory.
  size_t next_receive_ = 0;
  KernelContext context_;
  bool injects_nan_ = false;  // The next result is to be NaN: a test asks for that.
  int64_t pending_step_ = 0;
  StepStats figures_;
  Reductions reductions_;  // Last: its thread ends before what its tasks use.
};

Executor::Executor(ExecutorOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Executor::~Executor() = default;

Status Executor::ComputeGradients(int64_t step, int64_t first_sample) {
  return impl_->ComputeGradients(step, first_sample);
}
Result<VoteOutcome> Executor::Vote(int64_t step, const VoteFlags& flags) {
  return impl_->Vote(step, flags);
}
void Executor::Apply(int64_t step, double norm, double learning_rate) {
  impl_->Apply(step, norm, learning_rate);
}
int64_t Executor::pending_step() const {
  return impl_->pending_step();
}
const StepStats& Executor::figures() const {
  return impl_->figures();
}

}  // namespace heddle::runtime
