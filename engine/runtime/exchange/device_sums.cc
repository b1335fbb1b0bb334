#include "engine/runtime/exchange/device_sums.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system/host.h"
#include "engine/runtime/device/guarded.h"
#include "engine/runtime/exchange/peer_trial.h"

namespace heddle::runtime {

using program::Instruction;

namespace {

static_assert(kMostAddends == program::kMostSumAddends);

comm::CollectiveOptions OptionsOf(const std::vector<int>& ranks, uint64_t tag) {
  return {.group = ranks, .tag = tag, .deadline = {}};
}

/// Otherwise says that gradients go through the host, and why.
bool Succeeds(const Status& status) {
  if (!status.ok()) {
    LogWarning("gradients are summed through the host: {}", status.message());
  }
  return status.ok();
}

/// What the members of a group offer.
struct Offers {
  std::vector<Bytes> handles;  ///< Of their memory; none: one has no memory, or is on another host.
  uint64_t half = 0;           ///< Bytes of half of the least memory.
  uint64_t hash = 0;           ///< Of all records, which no other group has, nor this one again.
};

/// Reads the members' records: each has its host, the bytes of half of its memory, and the handle.
Offers OffersOf(const std::vector<Bytes>& records) {
  Offers offers{.handles = {}, .half = std::numeric_limits<uint64_t>::max()};
  for (const Bytes& record : records) {
    ByteReader reader(record);
    const Result<std::string> host = reader.GetString();
    const Result<uint64_t> half = reader.Get<uint64_t>();
    if (!host.ok() || *host != HostIdentity() || !half.ok() || reader.left() == 0) {
      return {};
    }
    offers.half = std::min(offers.half, *half);
    offers.hash = Hash64(record, offers.hash);
    const auto handle = *reader.GetRaw(reader.left());
    offers.handles.emplace_back(handle.begin(), handle.end());
  }
  return offers;
}

}  // namespace

DeviceSums::DeviceSums(const program::Program& program,
                       DType master,
                       comm::Communicator* group,
                       Device& device,
                       size_t most_bytes)
    : program_(program),
      master_(master),
      group_(group),
      device_(device),
      most_bytes_(most_bytes) {}

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
    found->second.half = std::max(found->second.half, HalfFor(instruction, elements, master_));
  }
  for (auto& [ranks, need] : needs) {
    need.half =
        std::min(need.half, most_bytes_ / (2 * needs.size()) / kSumAlignment * kSumAlignment);
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
  arenas->memory.resize(ranks.size());
  ByteWriter mine;
  mine.PutString(HostIdentity());
  mine.Put(uint64_t{need.half});
  if (PeerMemory* const peers = device_.peer_memory(); peers != nullptr) {
    auto arena = peers->Allocate(2 * need.half);
    if (Succeeds(arena.status())) {
      arenas->memory[arenas->position] = arena->memory;
      mine.PutRaw(arena->handle);
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Bytes> records,
                          group_->AllGatherBytes(mine.bytes(), OptionsOf(ranks, need.tag)));
  const Offers offers = OffersOf(records);
  if (offers.handles.empty()) {  // At all members alike.
    return Status::Ok();
  }
  arenas->half = offers.half;
  // Each member tells the others how far it is, and goes on if all are.
  const auto all_agree = [&](bool own) -> Result<bool> {
    const std::byte vote{own};
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<Bytes> votes,
        group_->AllGatherBytes(std::span(&vote, 1), OptionsOf(ranks, need.tag)));
    return std::ranges::count(votes, Bytes{std::byte{true}}) == std::ssize(votes);
  };
  const bool opened = Open(offers.handles, *arenas);
  std::optional<PeerTrial> trial;
  if (opened) {
    trial.emplace(device_, arenas, offers.hash);
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool all_put,
                          all_agree(opened && Succeeds(Guarded([&] { return trial->Put(); }))));
  if (!all_put) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool all_read,
                          all_agree(Succeeds(Guarded([&] { return trial->Read(); }))));
  if (all_read) {
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
    if (!Succeeds(arena.status())) {
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
