#include "engine/runtime/exchange/device_sums.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "base/log.h"
#include "base/system/host.h"

namespace heddle::runtime {

using program::Instruction;

namespace {

comm::CollectiveOptions OptionsOf(const std::vector<int>& ranks, uint64_t tag) {
  return {.group = ranks, .tag = tag, .deadline = {}};
}

/// The handles of all members, if each of them has one and all are on one host; else none. Each
/// record is the host, and the handle.
std::vector<Bytes> HandlesOf(const std::vector<Bytes>& records) {
  std::vector<Bytes> handles;
  for (const Bytes& record : records) {
    ByteReader reader(record);
    const Result<std::string> host = reader.GetString();
    if (!host.ok() || *host != HostIdentity() || reader.left() == 0) {
      return {};
    }
    const auto handle = *reader.GetRaw(reader.left());
    handles.emplace_back(handle.begin(), handle.end());
  }
  return handles;
}

}  // namespace

DeviceSums::DeviceSums(const program::Program& program,
                       DType master,
                       comm::Communicator* group,
                       Device& device,
                       size_t most_half)
    : program_(program),
      master_(master),
      group_(group),
      device_(device),
      most_half_(most_half) {}

int64_t DeviceSums::ElementsOf(const Instruction& instruction) const {
  const bool whole = instruction.rows.empty();
  return ElementCount(
      whole ? program_.slots[static_cast<size_t>(instruction.outputs[0])].type.shape
            : FindPiece(program_, instruction.parameter, instruction.piece)->box.extent);
}

// In the order in which they first sum, which is alike where two workers have several in common.
std::vector<std::pair<DeviceSums::Ranks, DeviceSums::Need>> DeviceSums::Needs() const {
  std::vector<std::pair<Ranks, Need>> needs;
  int64_t elements = 0;
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.code != program::Code::kReduce || instruction.group.size() < 2) {
      continue;
    }
    elements = ElementsOf(instruction) + (instruction.part == 0 ? 0 : elements);
    auto found = std::ranges::find(needs, instruction.group, &std::pair<Ranks, Need>::first);
    if (found == needs.end()) {
      found = needs.insert(needs.end(), {instruction.group, {.tag = instruction.tag}});
    }
    const size_t half = HalfFor(instruction, elements, master_);
    found->second.half = std::min(most_half_, std::max(found->second.half, half));
  }
  return needs;
}

Status DeviceSums::Agree() {
  if (group_ == nullptr || program_.determinism != program::Determinism::kExact) {
    return Status::Ok();
  }
  for (const auto& [ranks, need] : Needs()) {
    HEDDLE_RETURN_IF_ERROR(AgreeIn(ranks, need));
  }
  return Status::Ok();
}

Status DeviceSums::AgreeIn(const Ranks& ranks, const Need& need) {
  const auto arenas = std::make_shared<PeerArenas>();
  arenas->position = static_cast<size_t>(std::ranges::find(ranks, program_.rank) - ranks.begin());
  arenas->half = need.half;
  arenas->memory.resize(ranks.size());
  ByteWriter mine;
  mine.PutString(HostIdentity());
  if (PeerMemory* const peers = device_.peer_memory(); peers != nullptr) {
    auto arena = peers->Allocate(2 * need.half);
    if (arena.ok()) {
      arenas->memory[arenas->position] = arena->memory;
      mine.PutRaw(arena->handle);
    } else {
      LogWarning("gradients are summed through the host: {}", arena.status().message());
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Bytes> records,
                          group_->AllGatherBytes(mine.bytes(), OptionsOf(ranks, need.tag)));
  const std::vector<Bytes> handles = HandlesOf(records);
  if (handles.empty()) {  // At all members alike.
    return Status::Ok();
  }
  const std::byte opened{Open(handles, *arenas)};
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Bytes> votes,
      group_->AllGatherBytes(std::span(&opened, 1), OptionsOf(ranks, need.tag)));
  if (std::ranges::count(votes, Bytes{std::byte{true}}) == std::ssize(votes)) {
    members_[ranks] = {.arenas = arenas};
    LogInfo("the devices of {} workers sum gradients in memory that they read of each other",
            ranks.size());
  }
  return Status::Ok();
}

bool DeviceSums::Open(const std::vector<Bytes>& handles, PeerArenas& arenas) {
  for (size_t i = 0; i < handles.size(); ++i) {
    if (i == arenas.position) {
      continue;
    }
    auto arena = device_.peer_memory()->Open(handles[i]);
    if (!arena.ok()) {
      LogWarning("gradients are summed through the host: {}", arena.status().message());
      return false;
    }
    arenas.memory[i] = *std::move(arena);
  }
  return true;
}

bool DeviceSums::Makes(const Instruction& instruction) const {
  return members_.contains(instruction.group) && !AdditionsOf(instruction).empty();
}

// Returns once `mark` has ended, and those of all members.
Status DeviceSums::Meet(const Mark& mark, const Instruction& instruction) {
  const Status ended = mark.Wait(After(kLongestWait));
  if (!ended.ok()) {
    group_->Abort(ended);  // The others wait for this member.
    return ended;
  }
  return group_->Barrier(OptionsOf(instruction.group, instruction.tag));
}

// A half serves again two pieces later. By then all members have met twice since they queued their
// copies out of it, and each had waited for something that it had queued behind them.
Status DeviceSums::Make(std::vector<SumPart> parts, const Mark& computed) {
  const Instruction& instruction = *parts.front().instruction;
  int64_t elements = 0;
  for (const SumPart& part : parts) {
    elements += ElementsOf(*part.instruction);
  }
  Members& members = members_.at(instruction.group);
  const auto sum = std::make_shared<PeerSum>(std::move(parts), elements, master_, members.arenas);
  PeerMemory& peers = *device_.peer_memory();
  for (int64_t piece = 0; piece < sum->pieces(); ++piece) {
    const size_t half = std::exchange(members.turn, 1 - members.turn);
    HEDDLE_RETURN_IF_ERROR(Meet(peers.Copy(computed, sum->Put(piece, half), sum), instruction));
    HEDDLE_RETURN_IF_ERROR(Meet(peers.Add(sum->Add(piece, half), sum), instruction));
    newest_ = peers.Copy(Mark(), sum->Take(piece, half), sum);
  }
  return Status::Ok();
}

}  // namespace heddle::runtime
