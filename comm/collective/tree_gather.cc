// Barrier and gathering of records over the binary tree of positions (parent of p is (p - 1) / 2):
// few connections and a logarithmic number of hops, which is what small messages cost.
#include <algorithm>
#include <cstring>

#include "comm/collective/collective.h"

namespace heddle::comm {

namespace {

constexpr int64_t kGatherLimit = int64_t{64} << 20;
/// Bytes that a record adds to its content: position and size.
constexpr int64_t kRecordOverhead = 8;
/// A gather's first message has a fixed size, so that small records need one message: the total,
/// then as much of the content as fits.
constexpr int64_t kHeadBytes = 1024;
constexpr int64_t kHeadContent = kHeadBytes - 8;
/// A total with the meaning that there are too many bytes, so that all members give up.
constexpr uint64_t kTooMuch = ~uint64_t{0};

std::vector<int> Children(const Collective& call) {
  std::vector<int> children;
  for (const int child : {2 * call.position() + 1, 2 * call.position() + 2}) {
    if (child < call.size()) {
      children.push_back(child);
    }
  }
  return children;
}

int Parent(const Collective& call) {
  return (call.position() - 1) / 2;
}

struct Blob {
  Bytes head;
  std::span<const std::byte> rest;
};

Blob Pack(std::span<const std::byte> whole, bool too_much) {
  const auto content = too_much ? std::span<const std::byte>() : whole;
  Blob blob;
  ByteWriter writer;
  writer.Put(too_much ? kTooMuch : static_cast<uint64_t>(content.size()));
  const size_t inside = std::min(content.size(), static_cast<size_t>(kHeadContent));
  writer.PutRaw(content.first(inside));
  blob.head = writer.Take();
  blob.head.resize(static_cast<size_t>(kHeadBytes));
  blob.rest = content.subspan(inside);
  return blob;
}

/// The buffers of a gather's messages, which outlive the call's operations, however the call ends.
struct GatherBuffers {
  std::vector<Bytes> heads;     ///< By child.
  std::vector<Bytes> contents;  ///< By child.
  Bytes parent_head;
  Bytes whole;
  Bytes everything;  ///< All records, received from the parent.
  Blob up;
  Blob down;
};

/// Receives the content after a head into `content`; false: the sender reports too many bytes.
Result<bool> Unpack(
    Collective& call, int from, Phase rest_phase, std::span<const std::byte> head, Bytes& content) {
  ByteReader reader(head);
  HEDDLE_ASSIGN_OR_RETURN(const uint64_t total, reader.Get<uint64_t>());
  if (total == kTooMuch) {
    return false;
  }
  if (total > static_cast<uint64_t>(kGatherLimit + kRecordOverhead * call.size())) {
    return DataLossError("a gather of {} bytes", total);
  }
  content.resize(total);
  const size_t inside = std::min<size_t>(total, static_cast<size_t>(kHeadContent));
  HEDDLE_ASSIGN_OR_RETURN(const auto first, reader.GetRaw(inside));
  std::copy(first.begin(), first.end(), content.begin());
  if (inside < total) {
    HEDDLE_RETURN_IF_ERROR(
        call.Wait(call.Recv(from, rest_phase, 0, 0, std::span(content).subspan(inside))));
  }
  return true;
}

Result<std::vector<Bytes>> SplitRecords(std::span<const std::byte> content, int members) {
  std::vector<Bytes> records(static_cast<size_t>(members));
  std::vector<bool> seen(static_cast<size_t>(members));
  ByteReader reader(content);
  for (int i = 0; i < members; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const auto position, reader.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto size, reader.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto record, reader.GetRaw(size));
    if (position >= static_cast<uint32_t>(members) || seen[position]) {
      return DataLossError("a gather with record {} of {}", position, members);
    }
    seen[position] = true;
    records[position].assign(record.begin(), record.end());
  }
  return records;
}

}  // namespace

Status TreeBarrier(Collective& call) {
  const std::vector<int> children = Children(call);
  for (const int child : children) {
    HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(child, Phase::kBarrierUp, 0, 0, {})));
  }
  if (call.position() > 0) {
    call.Send(Parent(call), Phase::kBarrierUp, 0, 0, {});
    HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(Parent(call), Phase::kBarrierDown, 0, 0, {})));
  }
  for (const int child : children) {
    call.Send(child, Phase::kBarrierDown, 0, 0, {});
  }
  return call.WaitAll();
}

namespace {

Result<std::vector<Bytes>> GatherOverTree(Collective& call,
                                          std::span<const std::byte> mine,
                                          GatherBuffers& buffers) {
  const std::vector<int> children = Children(call);
  buffers.heads.assign(children.size(), Bytes(static_cast<size_t>(kHeadBytes)));
  buffers.contents.resize(children.size());
  std::vector<Collective::Pending> arriving;
  for (size_t i = 0; i < children.size(); ++i) {
    arriving.push_back(call.Recv(children[i], Phase::kGatherUp, 0, 0, buffers.heads[i]));
  }
  buffers.parent_head.resize(static_cast<size_t>(kHeadBytes));
  Collective::Pending from_parent;
  if (call.position() > 0) {
    from_parent = call.Recv(Parent(call), Phase::kGatherDown, 0, 0, buffers.parent_head);
  }

  bool too_much = mine.size() > static_cast<size_t>(kGatherLimit);
  ByteWriter subtree;
  if (!too_much) {
    subtree.Put(static_cast<uint32_t>(call.position()));
    subtree.Put(static_cast<uint32_t>(mine.size()));
    subtree.PutRaw(mine);
  }
  for (size_t i = 0; i < children.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(call.Wait(arriving[i]));
    Bytes& content = buffers.contents[i];
    HEDDLE_ASSIGN_OR_RETURN(const bool fits, Unpack(call, children[i], Phase::kGatherUpRest,
                                                    buffers.heads[i], content));
    too_much = too_much || !fits ||
               subtree.bytes().size() + content.size() >
                   static_cast<size_t>(kGatherLimit + kRecordOverhead * call.size());
    if (!too_much) {
      subtree.PutRaw(content);
    }
    content = Bytes();  // All of it has arrived and is copied.
  }

  Bytes& whole = buffers.whole;
  whole = subtree.Take();
  if (call.position() > 0) {
    buffers.up = Pack(whole, too_much);
    const Blob& up = buffers.up;
    auto head_sent = call.Send(Parent(call), Phase::kGatherUp, 0, 0, up.head);
    if (!up.rest.empty()) {
      HEDDLE_RETURN_IF_ERROR(
          call.Wait(call.Send(Parent(call), Phase::kGatherUpRest, 0, 0, up.rest)));
    }
    HEDDLE_RETURN_IF_ERROR(call.Wait(head_sent));
    HEDDLE_RETURN_IF_ERROR(call.Wait(from_parent));
    HEDDLE_ASSIGN_OR_RETURN(const bool fits, Unpack(call, Parent(call), Phase::kGatherDownRest,
                                                    buffers.parent_head, buffers.everything));
    too_much = !fits;
    whole = too_much ? Bytes() : std::move(buffers.everything);
  }
  buffers.down = Pack(whole, too_much);
  const Blob& down = buffers.down;
  for (const int child : children) {
    call.Send(child, Phase::kGatherDown, 0, 0, down.head);
    if (!down.rest.empty()) {
      call.Send(child, Phase::kGatherDownRest, 0, 0, down.rest);
    }
  }
  HEDDLE_RETURN_IF_ERROR(call.WaitAll());
  if (too_much) {
    return InvalidArgumentError("the records to gather are larger than {} bytes in sum",
                                kGatherLimit);
  }
  return SplitRecords(whole, call.size());
}

}  // namespace

Result<std::vector<Bytes>> TreeGatherBytes(Collective& call, std::span<const std::byte> mine) {
  GatherBuffers buffers;
  auto records = GatherOverTree(call, mine, buffers);
  if (!records.ok()) {
    call.CancelAll();  // Before the buffers go.
  }
  return records;
}

}  // namespace heddle::comm
