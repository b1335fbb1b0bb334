// Collectives in one round: everyone sends each member what it needs. Fewest messages in a row; for
// large buffers the rings (ring.cc) send fewer bytes. Folds run in the order of positions.
#include <algorithm>
#include <cstring>

#include "comm/collective.h"
#include "comm/reduce.h"

namespace heddle::comm {

namespace {

// Folds what the members sent (`arrived` by position; own: `mine`) and rounds once into `output`.
void FoldInOrder(std::span<const Bytes> arrived,
                 int own,
                 std::span<const std::byte> mine,
                 std::span<std::byte> output,
                 DType dtype,
                 ReduceOp op) {
  const DType partial_type = PartialType(dtype, op);
  const size_t elements = output.size() / static_cast<size_t>(SizeOf(dtype));
  Bytes partial(elements * static_cast<size_t>(SizeOf(partial_type)));
  Bytes widened(partial_type == dtype ? 0 : partial.size());
  for (size_t i = 0; i < arrived.size(); ++i) {
    const std::span<const std::byte> value =
        static_cast<int>(i) == own ? mine : std::span<const std::byte>(arrived[i]);
    if (i == 0) {
      Convert(value, dtype, partial, partial_type);
    } else if (partial_type == dtype) {
      FoldInto(partial, value, dtype, op);
    } else {
      Convert(value, dtype, widened, partial_type);
      FoldInto(partial, widened, partial_type, op);
    }
  }
  Convert(partial, partial_type, output, dtype);
}

}  // namespace

Status DirectReduceScatter(Collective& call,
                           std::span<const std::byte> input,
                           std::span<std::byte> output,
                           const Segments& segments,
                           DType dtype,
                           ReduceOp op) {
  const int64_t element = SizeOf(dtype);
  const auto segment = [&](int i) {
    return Slice(input, segments.begin(i) * element, segments.count(i) * element);
  };
  std::vector<Bytes> arrived(static_cast<size_t>(call.size()));
  const int own = call.position();
  for (int i = 0; i < call.size(); ++i) {
    if (i != own && !output.empty()) {
      Bytes& buffer = arrived[static_cast<size_t>(i)];
      buffer.resize(output.size());
      call.Recv(i, Phase::kExchange, 0, 0, buffer);
    }
  }
  for (int step = 1; step < call.size();
       ++step) {  // Each starts with another, so that nobody is flooded.
    const int to = (own + step) % call.size();
    if (segments.count(to) > 0) {
      call.Send(to, Phase::kExchange, 0, 0, segment(to));
    }
  }
  const Status status = call.WaitAll();
  if (!status.ok()) {
    call.CancelAll();
    return status;
  }
  FoldInOrder(arrived, own, segment(own), output, dtype, op);
  return Status::Ok();
}

Status DirectAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op) {
  std::vector<Bytes> arrived(static_cast<size_t>(call.size()));
  const int own = call.position();
  for (int step = 1; step < call.size(); ++step) {
    const int other = (own + step) % call.size();
    Bytes& from = arrived[static_cast<size_t>(other)];
    from.resize(buffer.size());
    call.Recv(other, Phase::kExchange, 0, 0, from);
    call.Send(other, Phase::kExchange, 0, 0, buffer);
  }
  const Status status = call.WaitAll();
  if (!status.ok()) {
    call.CancelAll();
    return status;
  }
  const Bytes mine(buffer.begin(), buffer.end());
  FoldInOrder(arrived, own, mine, buffer, dtype, op);
  return Status::Ok();
}

Status DirectAllGather(Collective& call,
                       std::span<std::byte> output,
                       const Segments& segments,
                       int64_t element) {
  const auto segment = [&](int i) {
    return Slice(output, segments.begin(i) * element, segments.count(i) * element);
  };
  const int own = call.position();
  for (int step = 1; step < call.size(); ++step) {
    const int other = (own + step) % call.size();
    if (segments.count(other) > 0) {
      call.Recv(other, Phase::kExchange, 0, 0, segment(other));
    }
    if (segments.count(own) > 0) {
      call.Send(other, Phase::kExchange, 0, 0, segment(own));
    }
  }
  return call.WaitAll();
}

}  // namespace heddle::comm
