#include "elastic/worker/trainer/state_move.h"

#include <algorithm>

#include "checkpoint/format/layout.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/save/memory_part.h"
#include "checkpoint/save/save_tasks.h"
#include "checkpoint/storage/storage.h"
#include "elastic/worker/trainer/saves.h"

namespace heddle::elastic {
namespace {

// A message is of no more bytes, so that a worker on a slow link shows that something arrives; and
// about so many are read from storage at once.
constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr size_t kReadBytes = size_t{256} << 20;

int64_t PiecesOf(int64_t bytes) {
  return std::max<int64_t>(1, (bytes + kPieceBytes - 1) / kPieceBytes);
}

// The boxes that the valid workers hold under the plan they come from.
std::vector<program::HeldState> HeldBoxes(const graph::Graph& graph,
                                          const program::Plan& plan,
                                          const wire::Start::Held& held) {
  const program::StateLayout layout = program::LayoutOf(graph, plan);
  std::vector<program::HeldState> out;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    const std::string& worker = plan.workers[rank];
    if (std::ranges::find(held.workers(), worker) != held.workers().end()) {
      out.push_back({.worker = worker, .boxes = layout[rank]});
    }
  }
  return out;
}

// The boxes that the holders have in shards of the snapshot.
Result<std::vector<program::HeldState>> ReplicatedBoxes(const graph::Graph& graph,
                                                        const wire::Start::Replicas& replicas) {
  HEDDLE_ASSIGN_OR_RETURN(const program::Plan plan, program::PlanFromJson(replicas.plan_json()));
  const program::StateLayout owned = program::OwnedLayout(graph, plan);
  std::vector<program::HeldState> held;
  for (const wire::Start::Replicas::Holder& holder : replicas.holders()) {
    program::HeldState& state = held.emplace_back();
    state.worker = holder.worker();
    for (const int owner : holder.owners()) {
      if (owner < 0 || owner >= static_cast<int>(owned.size())) {
        return InternalError("{} holds the part of rank {} of {}", holder.worker(), owner,
                             owned.size());
      }
      const auto& boxes = owned[static_cast<size_t>(owner)];
      state.boxes.insert(state.boxes.end(), boxes.begin(), boxes.end());
    }
  }
  return held;
}

}  // namespace

std::vector<comm::GroupMember> GroupMembers(
    const google::protobuf::RepeatedPtrField<wire::Member>& members) {
  std::vector<comm::GroupMember> out;
  for (const wire::Member& member : members) {
    out.push_back({.name = member.name(), .address = member.address()});
  }
  return out;
}

int RankOf(const std::vector<comm::GroupMember>& members, const std::string& name) {
  const auto found = std::ranges::find(members, name, &comm::GroupMember::name);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

StateMove::StateMove(const JobContext& context,
                     const wire::Start& start,
                     const Generation* held,
                     const ReplicaStore& replicas)
    : context_(context),
      graph_(context.graph),
      worker_(context.options.worker),
      start_(start),
      held_(held),
      replicas_(replicas),
      members_(GroupMembers(start.move_members())) {}

Status StateMove::Plan(const program::Plan& next) {
  if (start_.has_held()) {
    HEDDLE_ASSIGN_OR_RETURN(const program::Plan held,
                            program::PlanFromJson(start_.held().plan_json()));
    holders_ = HeldBoxes(graph_, held, start_.held());
  } else if (start_.has_replicas()) {
    HEDDLE_ASSIGN_OR_RETURN(holders_, ReplicatedBoxes(graph_, start_.replicas()));
  } else {
    return Status::Ok();
  }
  transfers_ = program::PlanTransfers(graph_, holders_, next);
  return Status::Ok();
}

std::vector<int> StateMove::Peers() const {
  std::vector<int> peers;
  for (const program::Transfer& transfer : transfers_) {
    if (transfer.source == worker_) {
      peers.push_back(RankOf(members_, transfer.target));
    } else if (transfer.target == worker_) {
      peers.push_back(RankOf(members_, transfer.source));
    }
  }
  return peers;
}

Status StateMove::Fill(comm::Communicator& group, Generation& next, StateMoved& moved) const {
  if (start_.has_held() || start_.has_replicas()) {
    HEDDLE_RETURN_IF_ERROR(FillFromPeers(group, next, moved));
  } else if (next.lowered->rank >= 0) {
    next.state->Hold(next.lowered->training.parameters);
    if (start_.initial()) {
      next.state->Initialize(context_.options.job.seed);
    } else {
      HEDDLE_RETURN_IF_ERROR(FillFromCheckpoint(next, moved));
    }
  }
  next.state->Refresh();
  return Status::Ok();
}

// What comes from others, or goes to them.
Status StateMove::FillFromPeers(comm::Communicator& group,
                                Generation& next,
                                StateMoved& moved) const {
  std::vector<Message> messages;
  uint64_t tag = kMoveTag + 1;
  for (const program::Transfer& transfer : transfers_) {
    const bool receives = transfer.target == worker_;
    if (transfer.source.empty() && receives) {
      return DataLossError("nobody holds {} any more", graph_.parameter(transfer.parameter).name);
    }
    if (transfer.source == worker_ || receives) {
      Message& message = messages.emplace_back();
      message.transfer = &transfer;
      message.tag = tag;
      message.receives = receives;
    }
    tag += static_cast<uint64_t>(PiecesOf(BytesOf(transfer.box)));
  }
  HEDDLE_RETURN_IF_ERROR(start_.has_held() ? PackHeld(next, messages)
                                           : UnpackReplicas(next, messages, moved));
  for (Message& message : messages) {
    const program::Transfer& transfer = *message.transfer;
    if (message.receives) {
      message.whole = next.state->BytesOf(transfer.parameter, transfer.role);
      if (!IsWhole(transfer)) {
        message.buffer.resize(static_cast<size_t>(BytesOf(transfer.box)));
      }
    }
    Begin(group, message);
  }
  return Await(group, messages, moved);
}

void StateMove::Begin(comm::Communicator& group, Message& message) const {
  const program::Transfer& transfer = *message.transfer;
  const std::span<std::byte> bytes = message.bytes();
  const auto most = static_cast<size_t>(kPieceBytes);
  const auto count = static_cast<size_t>(PiecesOf(std::ssize(bytes)));
  for (size_t i = 0; i < count; ++i) {
    const auto piece = bytes.subspan(i * most, std::min(most, bytes.size() - i * most));
    const uint64_t tag = message.tag + i;
    message.pieces.push_back(
        message.receives
            ? group.Recv(RankOf(members_, transfer.source), tag, piece, /*urgent=*/false)
            : group.Send(RankOf(members_, transfer.target), tag, piece, /*urgent=*/false));
  }
}

// Who holds the others up is the coordinator's affair: it sees everybody's progress.
Status StateMove::AwaitPieces(comm::Communicator& group, Message& message) const {
  Status first;
  for (const comm::Work& piece : message.pieces) {
    const Status status = piece.Wait(After(context_.options.policy.coordinator_wait));
    if (status.ok()) {
      context_.progress.Note();
    } else if (first.ok()) {
      first = status;
      group.Abort(status);  // So that the other waits end and no message is left in our memory.
    }
  }
  return first;
}

Status StateMove::Await(comm::Communicator& group,
                        std::vector<Message>& messages,
                        StateMoved& moved) const {
  const std::string source = start_.has_held() ? "memory" : "replica";
  Status first;
  const Progress::Wait waits(context_.progress);
  for (Message& message : messages) {
    const program::Transfer& transfer = *message.transfer;
    const Status status = AwaitPieces(group, message);
    if (first.ok()) {
      first = status;
    }
    if (status.ok() && message.receives) {
      moved.bytes[source] += BytesOf(transfer.box);
      if (!message.buffer.empty()) {
        Unpack(transfer.parameter, transfer.box, message.buffer, message.whole);
      }
    }
  }
  return first;
}

// What is held here is shared with the next state, and given to others from where it lies.
Status StateMove::PackHeld(Generation& next, std::vector<Message>& messages) const {
  const auto& holders = start_.held().workers();
  const bool valid_here = std::ranges::find(holders, worker_) != holders.end();
  if (valid_here && (held_ == nullptr || held_->applied_step != start_.applied_step())) {
    return InternalError("state of step {} is held where step {} is expected",
                         held_ == nullptr ? 0 : held_->applied_step, start_.applied_step());
  }
  if (valid_here) {
    next.state->Share(*held_->state, next.lowered->training.parameters);
  }
  next.state->Hold(next.lowered->training.parameters);
  for (Message& message : messages) {
    if (message.receives) {
      continue;
    }
    const program::Transfer& transfer = *message.transfer;
    message.whole = held_->state->BytesOf(transfer.parameter, transfer.role);
    if (!IsWhole(transfer)) {
      message.buffer.resize(static_cast<size_t>(BytesOf(transfer.box)));
      checkpoint::CopyPart(
          message.whole.data(), WholeBox(graph_.parameter(transfer.parameter).shape),
          message.buffer.data(), transfer.box, transfer.box, SizeOf(graph_.master_dtype()));
    }
  }
  return Status::Ok();
}

// Reads what others need, and what this worker needs itself, out of the shards that are here.
Status StateMove::UnpackReplicas(Generation& next,
                                 std::vector<Message>& messages,
                                 StateMoved& moved) const {
  next.state->Hold(next.lowered->training.parameters);
  const auto& holders = start_.replicas().holders();
  const auto mine = std::ranges::find(holders, worker_, &wire::Start::Replicas::Holder::worker);
  if (mine == holders.end()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const auto shards,
      replicas_.Find(*next.snapshot, {mine->owners().begin(), mine->owners().end()}));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, checkpoint::ReaderOver(shards));
  std::vector<checkpoint::ReadRequest> requests;
  const auto read = [&](const program::StateBox& box, std::span<std::byte> out) {
    requests.push_back(
        {.key = StoredBoxOf(graph_, box).tensor().key(), .box = box.box, .out = out});
  };
  for (Message& message : messages) {
    if (!message.receives) {
      const program::Transfer& transfer = *message.transfer;
      message.buffer.resize(static_cast<size_t>(BytesOf(transfer.box)));
      read({.parameter = transfer.parameter, .role = transfer.role, .box = transfer.box},
           message.buffer);
    }
  }
  const std::vector<program::StateBox> own = OwnBoxes(*next.lowered);
  std::vector<Bytes> pieces(own.size());  // Those that are not whole tensors.
  for (size_t i = 0; i < own.size(); ++i) {
    const auto bytes = next.state->BytesOf(own[i].parameter, own[i].role);
    const int64_t wanted = BytesOf(own[i].box);
    moved.bytes["replica"] += wanted;
    if (wanted < static_cast<int64_t>(bytes.size())) {
      pieces[i].resize(static_cast<size_t>(wanted));
    }
    read(own[i], pieces[i].empty() ? bytes : std::span(pieces[i]));
  }
  HEDDLE_RETURN_IF_ERROR(Read(*reader, requests));
  for (size_t i = 0; i < own.size(); ++i) {
    if (!pieces[i].empty()) {
      Unpack(own[i].parameter, own[i].box, pieces[i],
             next.state->BytesOf(own[i].parameter, own[i].role));
    }
  }
  return Status::Ok();
}

// What this worker needs and has itself: nobody sends it.
std::vector<program::StateBox> StateMove::OwnBoxes(const Lowered& next) const {
  std::vector<program::StateBox> own;
  const auto mine = std::ranges::find(holders_, worker_, &program::HeldState::worker);
  if (mine == holders_.end() || next.rank < 0) {
    return own;
  }
  const auto layout = program::LayoutOf(graph_, next.plan);
  for (const program::StateBox& wanted : layout[static_cast<size_t>(next.rank)]) {
    for (const program::StateBox& box : mine->boxes) {
      if (box.parameter == wanted.parameter && box.role == wanted.role) {
        if (auto common = Intersect(wanted.box, box.box)) {
          own.push_back({.parameter = box.parameter, .role = box.role, .box = *std::move(common)});
        }
      }
    }
  }
  return own;
}

Status StateMove::FillFromCheckpoint(Generation& next, StateMoved& moved) const {
  const job::JobConfig& job = context_.options.job;
  const std::string path =
      checkpoint::JoinPath(job.checkpoint.RootIn(context_.options.output_folder),
                           checkpoint::StepFolderName(start_.checkpoint_step()));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, checkpoint::Reader::Open(path));
  std::vector<checkpoint::ReadRequest> requests;
  const auto layout = program::LayoutOf(graph_, next.lowered->plan);
  for (const program::StateBox& box : layout[static_cast<size_t>(next.lowered->rank)]) {
    const std::span<std::byte> bytes = next.state->BytesOf(box.parameter, box.role);
    moved.bytes["checkpoint"] += static_cast<int64_t>(bytes.size());
    requests.push_back(
        {.key = StoredBoxOf(graph_, box).tensor().key(), .box = box.box, .out = bytes});
  }
  return Read(*reader, requests);
}

Status StateMove::Read(const checkpoint::Reader& reader,
                       std::span<const checkpoint::ReadRequest> requests) const {
  while (!requests.empty()) {
    size_t count = 0;
    for (size_t bytes = 0; count < requests.size() && bytes < kReadBytes; ++count) {
      bytes += requests[count].out.size();
    }
    HEDDLE_RETURN_IF_ERROR(
        reader.ReadBoxes(requests.first(count), static_cast<int>(context_.options.job.threads)));
    context_.progress.Note();
    requests = requests.subspan(count);
  }
  return Status::Ok();
}

int64_t StateMove::BytesOf(const Box& box) const {
  return ElementCount(box.extent) * SizeOf(graph_.master_dtype());
}

bool StateMove::IsWhole(const program::Transfer& transfer) const {
  return transfer.box == WholeBox(graph_.parameter(transfer.parameter).shape);
}

void StateMove::Unpack(graph::ParameterId parameter,
                       const Box& box,
                       const Bytes& buffer,
                       std::span<std::byte> whole) const {
  checkpoint::CopyPart(buffer.data(), box, whole.data(),
                       WholeBox(graph_.parameter(parameter).shape), box,
                       SizeOf(graph_.master_dtype()));
}

}  // namespace heddle::elastic
