#include "elastic/worker/trainer/state_move.h"

#include <algorithm>

#include "checkpoint/format/layout.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/save/memory_shard.h"
#include "checkpoint/save/save_tasks.h"
#include "checkpoint/storage/storage.h"
#include "elastic/worker/trainer/held_boxes.h"
#include "elastic/worker/trainer/saves.h"

namespace heddle::elastic {

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
    HEDDLE_RETURN_IF_ERROR(next.state->Hold(next.lowered->training));
    if (start_.initial()) {
      HEDDLE_RETURN_IF_ERROR(next.state->Initialize(context_.options.job.seed));
    } else {
      HEDDLE_RETURN_IF_ERROR(FillFromCheckpoint(next, moved));
    }
  }
  next.state->Refresh();
  return Status::Ok();
}

// Exchanges state with other workers.
Status StateMove::FillFromPeers(comm::Communicator& group,
                                Generation& next,
                                StateMoved& moved) const {
  std::vector<Message> messages;
  uint64_t tag = kMoveTag + 1;
  int64_t expected = 0;
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
      expected += receives ? BytesOf(transfer.box) : 0;
    }
    tag += static_cast<uint64_t>(PiecesOf(BytesOf(transfer.box))) + 1;
  }
  HEDDLE_RETURN_IF_ERROR(CheckCoverage(*next.lowered));
  context_.move.Begin(expected);
  HEDDLE_RETURN_IF_ERROR(start_.has_held() ? PackHeld(next, messages)
                                           : UnpackReplicas(next, messages, moved));
  const Time begun = Now();
  for (Message& message : messages) {
    if (message.receives) {
      const program::Transfer& transfer = *message.transfer;
      message.in_place = next.state->InPlace(transfer.parameter, transfer.role, transfer.box);
      if (message.in_place.empty()) {
        message.buffer = BufferOf(transfer.box);
      }
      Begin(group, message);
    }
  }
  // A message's hashes are computed while it is being sent.
  for (Message& message : messages) {
    if (!message.receives) {
      Begin(group, message);
      context_.progress.Note();
    }
  }
  const Status status = Await(group, next, messages, moved);
  moved.transfer_seconds = Seconds(Now() - begun);
  return status;
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
  message.hashes.resize(count);
  if (!message.receives) {
    message.hashes = State().Hashes(transfer, bytes);
  }
  const auto hashes = std::as_writable_bytes(std::span(message.hashes));
  const uint64_t tag = message.tag + count;
  message.pieces.push_back(
      message.receives
          ? group.Recv(RankOf(members_, transfer.source), tag, hashes, /*urgent=*/false)
          : group.Send(RankOf(members_, transfer.target), tag, hashes, /*urgent=*/false));
}

MovedState StateMove::State() const {
  return {
      .generation = start_.has_held() ? start_.held().generation() : start_.replicas().generation(),
      .step = start_.applied_step()};
}

// Compares a received box with its hashes. A difference may come from the sender or from the
// transfer; the coordinator decides what to do.
Status StateMove::Verify(Message& message, StateMoved& moved) const {
  const program::Transfer& transfer = *message.transfer;
  const auto difference = Compare(message.hashes, State().Hashes(transfer, message.bytes()));
  context_.progress.Note();
  if (!difference) {
    return Status::Ok();
  }
  auto refused = std::ranges::find(moved.refused, transfer.source, &wire::Ready::Refused::holder);
  if (refused == moved.refused.end()) {
    refused = moved.refused.insert(moved.refused.end(), wire::Ready::Refused());
    refused->set_holder(transfer.source);
    refused->set_chunk(NameOf(graph_.parameter(transfer.parameter).name, transfer,
                              difference->piece, message.hashes.size()));
    refused->set_expected(difference->expected);
    refused->set_found(difference->found);
  }
  refused->set_chunks(refused->chunks() + difference->pieces);
  return DataLossError("{} from {} has the hash {:016x}, and {:016x} was sent", refused->chunk(),
                       transfer.source, difference->found, difference->expected);
}

// Waits for the pieces of a message. The coordinator, which sees all progress, finds slow peers.
Status StateMove::AwaitPieces(comm::Communicator& group, Message& message) const {
  Status first;
  int64_t left = message.receives ? std::ssize(message.bytes()) : 0;
  for (const comm::Work& piece : message.pieces) {
    const Status status = piece.Wait(After(kLongestMove));
    if (status.ok()) {
      context_.progress.Note();
      const int64_t bytes = std::min(left, kPieceBytes);  // 0 for the last one, the hashes.
      context_.move.Add(bytes);
      left -= bytes;
    } else if (first.ok()) {
      first = status;
      group.Abort(status);  // Ends the other waits, so that no message uses our memory any more.
    }
  }
  return first;
}

Status StateMove::Await(comm::Communicator& group,
                        Generation& next,
                        std::vector<Message>& messages,
                        StateMoved& moved) const {
  const std::string source = start_.has_held() ? "memory" : "replica";
  Status first;
  const Progress::Wait waits(context_.progress);
  for (Message& message : messages) {
    const program::Transfer& transfer = *message.transfer;
    Status status = AwaitPieces(group, message);
    if (status.ok() && message.receives) {
      status = Verify(message, moved);
    }
    if (status.ok() && message.receives) {
      moved.bytes[source] += BytesOf(transfer.box);
      status = next.state->Write(transfer.parameter, transfer.role, transfer.box, message.bytes());
    }
    if (first.ok()) {
      first = status;
    }
  }
  return first;
}

// Shares the held state with the next one, and prepares the messages to other workers from it.
Status StateMove::PackHeld(Generation& next, std::vector<Message>& messages) const {
  const bool valid_here = std::ranges::count(start_.held().workers(), worker_) > 0;
  if (valid_here && (held_ == nullptr || held_->applied_step != start_.applied_step())) {
    return InternalError("state of step {} is held where step {} is expected",
                         held_ == nullptr ? 0 : held_->applied_step, start_.applied_step());
  }
  if (valid_here) {
    next.state->Share(*held_->state, next.lowered->training.parameters);
  }
  HEDDLE_RETURN_IF_ERROR(next.state->Hold(next.lowered->training));
  if (valid_here) {
    HEDDLE_RETURN_IF_ERROR(CopyBoxes(graph_, *held_->state, OwnBoxes(*next.lowered), *next.state));
  }
  for (Message& message : messages) {
    if (message.receives) {
      continue;
    }
    const program::Transfer& transfer = *message.transfer;
    message.in_place = held_->state->InPlace(transfer.parameter, transfer.role, transfer.box);
    if (message.in_place.empty()) {
      message.buffer = BufferOf(transfer.box);
      HEDDLE_RETURN_IF_ERROR(
          held_->state->Read(transfer.parameter, transfer.role, transfer.box, message.buffer));
    }
  }
  return Status::Ok();
}

// Reads the boxes for other workers and for this one from the held shards.
Status StateMove::UnpackReplicas(Generation& next,
                                 std::vector<Message>& messages,
                                 StateMoved& moved) const {
  HEDDLE_RETURN_IF_ERROR(next.state->Hold(next.lowered->training));
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
      message.buffer = BufferOf(transfer.box);
      read({.parameter = transfer.parameter, .role = transfer.role, .box = transfer.box},
           message.buffer);
    }
  }
  const std::vector<program::StateBox> own = OwnBoxes(*next.lowered);
  std::vector<Bytes> pieces(own.size());  // Buffers of boxes that are not read in place.
  for (size_t i = 0; i < own.size(); ++i) {
    moved.bytes["replica"] += BytesOf(own[i].box);
    std::span<std::byte> to = next.state->InPlace(own[i].parameter, own[i].role, own[i].box);
    if (to.empty()) {
      to = pieces[i] = BufferOf(own[i].box);
    }
    read(own[i], to);
  }
  const Status status = Read(*reader, requests);
  if (status.code() == StatusCode::kDataLoss) {  // Another holder may have an intact copy.
    wire::Ready::Refused& refused = moved.refused.emplace_back();
    refused.set_holder(worker_);
    refused.set_chunk(status.message());
    refused.set_chunks(1);
  }
  HEDDLE_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < own.size(); ++i) {
    if (!pieces[i].empty()) {
      HEDDLE_RETURN_IF_ERROR(
          next.state->Write(own[i].parameter, own[i].role, own[i].box, pieces[i]));
    }
  }
  return Status::Ok();
}

// Checks that each element of this worker's share under the plan is held here or received, once.
Status StateMove::CheckCoverage(const Lowered& next) const {
  if (next.rank < 0) {
    return Status::Ok();
  }
  std::vector<program::StateBox> given = OwnBoxes(next);
  for (const program::Transfer& transfer : transfers_) {
    if (transfer.target == worker_) {
      given.push_back({transfer.parameter, transfer.role, transfer.box});
    }
  }
  const auto layout = program::LayoutOf(graph_, next.plan);
  return program::CheckCoverage(graph_, layout[static_cast<size_t>(next.rank)], given);
}

// The boxes that this worker needs and holds itself.
std::vector<program::StateBox> StateMove::OwnBoxes(const Lowered& next) const {
  const auto mine = std::ranges::find(holders_, worker_, &program::HeldState::worker);
  if (mine == holders_.end() || next.rank < 0) {
    return {};
  }
  const auto layout = program::LayoutOf(graph_, next.plan);
  return CommonBoxes(layout[static_cast<size_t>(next.rank)], mine->boxes);
}

Status StateMove::FillFromCheckpoint(Generation& next, StateMoved& moved) const {
  const std::string path =
      checkpoint::JoinPath(context_.options.job.checkpoint.RootIn(context_.options.output_folder),
                           checkpoint::StepFolderName(start_.checkpoint_step()));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, checkpoint::Reader::Open(path));
  const auto layout = program::LayoutOf(graph_, next.lowered->plan);
  const auto& boxes = layout[static_cast<size_t>(next.lowered->rank)];
  for (const program::StateBox& box : boxes) {
    moved.bytes["checkpoint"] += BytesOf(box.box);
  }
  context_.move.Begin(moved.bytes["checkpoint"]);
  return ReadState(*reader, boxes, *next.state);
}

// About kReadBytes at once, so that no more is copied on the way to a device.
Status StateMove::ReadState(const checkpoint::Reader& reader,
                            std::span<const program::StateBox> boxes,
                            runtime::ParameterState& state) const {
  while (!boxes.empty()) {
    std::vector<checkpoint::ReadRequest> requests;
    std::vector<Bytes> copies;
    for (int64_t bytes = 0; requests.size() < boxes.size() && bytes < kReadBytes;) {
      const program::StateBox& box = boxes[requests.size()];
      std::span<std::byte> to = state.InPlace(box.parameter, box.role, box.box);
      if (to.empty()) {
        to = copies.emplace_back(BufferOf(box.box));
      }
      requests.push_back(
          {.key = StoredBoxOf(graph_, box).tensor().key(), .box = box.box, .out = to});
      bytes += std::ssize(to);
    }
    HEDDLE_RETURN_IF_ERROR(Read(reader, requests));
    for (size_t i = 0; i < requests.size(); ++i) {
      HEDDLE_RETURN_IF_ERROR(
          state.Write(boxes[i].parameter, boxes[i].role, boxes[i].box, requests[i].out));
    }
    boxes = boxes.subspan(requests.size());
  }
  return Status::Ok();
}

Status StateMove::Read(const checkpoint::Reader& reader,
                       std::span<const checkpoint::ReadRequest> requests) const {
  while (!requests.empty()) {
    size_t count = 0;
    int64_t bytes = 0;
    for (; count < requests.size() && bytes < kReadBytes; ++count) {
      bytes += std::ssize(requests[count].out);
    }
    HEDDLE_RETURN_IF_ERROR(
        reader.ReadBoxes(requests.first(count), static_cast<int>(context_.options.job.threads)));
    context_.progress.Note();
    context_.move.Add(bytes);
    requests = requests.subspan(count);
  }
  return Status::Ok();
}

int64_t StateMove::BytesOf(const Box& box) const {
  return ElementCount(box.extent) * SizeOf(graph_.master_dtype());
}

}  // namespace heddle::elastic
