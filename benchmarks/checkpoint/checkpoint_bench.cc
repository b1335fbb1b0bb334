// Heddle's side of the task `checkpoint`: it keeps a state and takes commands.
//
//   checkpoint_bench make CHECKPOINT BYTES FOLDER   makes a state (state.h)
//   checkpoint_bench serve FOLDER ROOT THREADS      reads commands from standard input:
//
//   save ROLE         saves the state below ROOT, the bf16 weights under ROLE, and commits. The
//                     caller waits, as the peers' do
//   stall ROLE HOW    the same in the background; the figures are those for which the caller is
//   stopped: `at-once`
//                     for the whole copy, `deferred` for what is left of it after three times as
//                     long as it takes
//   load PLAN PATH    reads a checkpoint: PLAN `same` reads whole tensors, `other` thirds of the
//                     first dimension by halves of the last one. The elements are compared with the
//                     state's
//   copy              a copy of the state in memory
//   write PATH        a plain file of the state's bytes, on storage at the end
//   read PATH         reads a file
//   codec ROLE        encodes and decodes a role's tensors in chunks, in one thread
//
// Each answers with one line of JSON; `seconds` are of the wall, `processor` of all threads
// together. Exit code 1: an error, in one line.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/system/unique_fd.h"
#include "benchmarks/checkpoint/state.h"
#include "checkpoint/codec/codec.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/digest.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/save/writer.h"
#include "checkpoint/store/store.h"
#include "metrics/registry.h"

namespace heddle::checkpoint {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kPiece = size_t{8} << 20;
constexpr auto kTimeout = std::chrono::minutes(10);

/// Time since its making.
class Meter {
 public:
  double seconds() const { return Seconds(Now() - start_); }
  double processor() const { return ProcessorNow() - processor_; }

 private:
  static double ProcessorNow() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  Time start_ = Now();
  double processor_ = ProcessorNow();
};

/// `box` cut into `pieces` nearly equal parts along `dimension`.
std::vector<Box> Cut(const Box& box, size_t dimension, int64_t pieces) {
  std::vector<Box> boxes;
  const int64_t extent = box.extent[dimension];
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = extent * i / pieces;
    const int64_t end = extent * (i + 1) / pieces;
    if (begin < end) {
      boxes.push_back(box);
      boxes.back().offset[dimension] += begin;
      boxes.back().extent[dimension] = end - begin;
    }
  }
  return boxes;
}

std::vector<Box> BoxesOf(const Shape& shape, bool other_plan) {
  if (!other_plan) {
    return {WholeBox(shape)};
  }
  std::vector<Box> boxes;
  for (const Box& rows : Cut(WholeBox(shape), 0, 3)) {
    const auto columns = shape.size() > 1 ? Cut(rows, shape.size() - 1, 2) : std::vector{rows};
    boxes.insert(boxes.end(), columns.begin(), columns.end());
  }
  return boxes;
}

class Bench {
 public:
  Bench(TrainingState state, std::string root, int threads)
      : state_(std::move(state)),
        root_(std::move(root)),
        threads_(threads),
        copy_(state_.elements.size()) {}

  Status Start() {
    HEDDLE_ASSIGN_OR_RETURN(
        writer_, Writer::Create({.root = root_,
                                 .name = "worker",
                                 .codec_threads = threads_,
                                 .niceness = 0,
                                 .reserve_bytes = static_cast<int64_t>(state_.elements.size())},
                                metrics_));
    for (const StateTensor& tensor : state_.tensors) {
      digests_[tensor.info.key()] = DigestBox(state_.BytesOf(tensor), SizeOf(tensor.info.dtype),
                                              tensor.info.shape, WholeBox(tensor.info.shape));
    }
    Copy();
    return Status::Ok();
  }

  Result<std::string> Run(const std::string& command, std::istream& arguments) {
    std::string first;
    std::string second;
    arguments >> first >> second;
    if (command == "save") {
      return Save(first, Timed::kAll);
    }
    if (command == "stall") {
      return Save(first, second == "deferred" ? Timed::kDeferred : Timed::kSnapshot);
    }
    if (command == "load") {
      return Load(second, first == "other");
    }
    if (command == "copy") {
      return Copy();
    }
    if (command == "write") {
      return Write(first);
    }
    if (command == "read") {
      return Read(first);
    }
    if (command == "codec") {
      return Codec(first);
    }
    return InvalidArgumentError("unknown command '{}'", command);
  }

 private:
  enum class Timed : uint8_t { kAll, kSnapshot, kDeferred };

  /// Computes without memory for as long as a step's forwards and backwards might take.
  static void PassTime(double seconds) {
    for (const Meter meter; meter.seconds() < seconds;) {
    }
  }

  Result<std::string> Save(const std::string& weight_role, Timed timed) {
    std::vector<BoxView> views;
    std::vector<TensorInfo> infos;
    for (const StateTensor& tensor : state_.tensors) {
      TensorInfo info = tensor.info;
      info.role = info.role == kWeightRole ? weight_role : info.role;
      views.push_back(
          {.stored = {info.name, info.role, info.dtype, info.shape, WholeBox(info.shape)},
           .bytes = state_.BytesOf(tensor)});
      infos.push_back(std::move(info));
    }
    const int64_t step = ++step_;
    const bool deferred = timed == Timed::kDeferred;
    const Meter meter;
    HEDDLE_RETURN_IF_ERROR(writer_
                               ->Snapshot({.step = step,
                                           .generation = 1,
                                           .deferred = deferred,
                                           .background = timed != Timed::kAll},
                                          views)
                               .status());
    double stall_seconds = meter.seconds();
    double stall_processor = meter.processor();
    if (deferred) {
      PassTime(3 * copy_seconds_);
      const Meter rest;
      writer_->FinishCopy();
      stall_seconds += rest.seconds();
      stall_processor += rest.processor();
    }
    HEDDLE_ASSIGN_OR_RETURN(auto part, writer_->Wait(After(kTimeout)));
    CommitRequest request{.root = root_,
                          .step = step,
                          .generation = 1,
                          .job = {},
                          .expected = std::move(infos),
                          .parts = {}};
    request.parts.push_back(std::move(part));
    HEDDLE_ASSIGN_OR_RETURN(const CommitInfo info, Commit(request, metrics_));
    return fmt::format(
        R"({{"seconds": {}, "processor": {}, "bytes": {}, "raw": {}, "path": "{}"}})",
        timed == Timed::kAll ? meter.seconds() : stall_seconds,
        timed == Timed::kAll ? meter.processor() : stall_processor, info.bytes, info.raw_bytes,
        info.path);
  }

  Result<std::string> Load(const std::string& path, bool other_plan) {
    // Memory that is there, with other content: what training resumes into.
    std::fill(copy_.begin(), copy_.end(), std::byte{0xEE});
    const Meter meter;
    HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(path));
    std::vector<ReadRequest> requests;
    size_t at = 0;
    for (const TensorRecord& tensor : reader->manifest().tensors) {
      for (const Box& box : BoxesOf(tensor.info.shape, other_plan)) {
        const auto bytes =
            static_cast<size_t>(ElementCount(box.extent) * SizeOf(tensor.info.dtype));
        if (bytes > copy_.size() - at) {
          return DataLossError("{}: more elements than the state has", path);
        }
        requests.push_back(
            {.key = tensor.info.key(), .box = box, .out = std::span(copy_).subspan(at, bytes)});
        at += bytes;
      }
    }
    HEDDLE_RETURN_IF_ERROR(reader->ReadBoxes(requests, threads_));
    const std::string answer = Answer(meter);
    HEDDLE_RETURN_IF_ERROR(Compare(reader->manifest(), requests));
    return answer;
  }

  /// Whether the boxes together are the state, by the digests of its tensors.
  Status Compare(const Manifest& manifest, const std::vector<ReadRequest>& requests) const {
    std::map<TensorKey, Digest> sums;
    for (const ReadRequest& request : requests) {
      const TensorInfo& info = manifest.Find(request.key)->info;
      TensorKey key = request.key;
      key.role = info.dtype == DType::kBF16 ? kWeightRole : key.role;
      sums[key] += DigestBox(request.out, SizeOf(info.dtype), info.shape, request.box);
    }
    return sums == digests_ ? Status::Ok() : DataLossError("what was loaded is not what was saved");
  }

  static std::string Answer(const Meter& meter) {
    return fmt::format(R"({{"seconds": {}, "processor": {}}})", meter.seconds(), meter.processor());
  }

  std::string Copy() {
    const Meter meter;
    std::memcpy(copy_.data(), state_.elements.data(), copy_.size());
    copy_seconds_ = meter.seconds();
    return Answer(meter);
  }

  Result<std::string> Write(const std::string& path) const {
    const Meter meter;
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    for (size_t at = 0; at < state_.elements.size();) {
      const size_t size = std::min(kPiece, state_.elements.size() - at);
      const ssize_t put = ::write(file.get(), state_.elements.data() + at, size);
      if (put <= 0) {
        return ErrnoError(errno, "write " + path);
      }
      at += static_cast<size_t>(put);
    }
    if (::fsync(file.get()) != 0) {
      return ErrnoError(errno, "fsync " + path);
    }
    return Answer(meter);
  }

  static Result<std::string> Read(const std::string& path) {
    Bytes piece(kPiece);
    const Meter meter;
    HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenRegularFile(path));
    for (int64_t at = 0; at < file->bytes(); at += static_cast<int64_t>(kPiece)) {
      const auto size = std::min(static_cast<int64_t>(kPiece), file->bytes() - at);
      HEDDLE_RETURN_IF_ERROR(file->ReadAt(at, std::span(piece).first(static_cast<size_t>(size))));
    }
    return Answer(meter);
  }

  Result<std::string> Codec(const std::string& role) const {
    struct Chunk {
      std::span<const std::byte> raw;
      int64_t element = 0;
      size_t offset = 0;  ///< Of the encoded bytes.
      int64_t size = 0;
    };
    std::vector<Chunk> chunks;
    size_t room = 0;
    int64_t raw_bytes = 0;
    for (const StateTensor& tensor : state_.tensors) {
      const auto bytes = state_.BytesOf(tensor);
      for (size_t at = 0; tensor.info.role == role && at < bytes.size(); at += kChunk) {
        const auto raw = bytes.subspan(at, std::min(kChunk, bytes.size() - at));
        chunks.push_back({.raw = raw, .element = SizeOf(tensor.info.dtype), .offset = room});
        room += static_cast<size_t>(EncodedBound(static_cast<int64_t>(raw.size())));
        raw_bytes += static_cast<int64_t>(raw.size());
      }
    }
    Bytes encoded(room);
    int64_t encoded_bytes = 0;
    ChunkEncoder encoder;
    const Meter encode;
    for (Chunk& chunk : chunks) {
      HEDDLE_ASSIGN_OR_RETURN(chunk.size, encoder.Encode(chunk.raw, chunk.element,
                                                         std::span(encoded).subspan(chunk.offset)));
      encoded_bytes += chunk.size;
    }
    const double encode_seconds = encode.seconds();
    const double encode_processor = encode.processor();
    Bytes raw(kChunk);
    ChunkDecoder decoder;
    const Meter decode;
    for (const Chunk& chunk : chunks) {
      const auto stored = std::span(encoded).subspan(chunk.offset, static_cast<size_t>(chunk.size));
      HEDDLE_RETURN_IF_ERROR(
          decoder.Decode(stored, chunk.element, std::span(raw).first(chunk.raw.size())));
    }
    return fmt::format(R"({{"encode_seconds": {}, "encode_processor": {}, "decode_seconds": {}, )"
                       R"("decode_processor": {}, "raw": {}, "bytes": {}}})",
                       encode_seconds, encode_processor, decode.seconds(), decode.processor(),
                       raw_bytes, encoded_bytes);
  }

  const TrainingState state_;
  const std::string root_;
  const int threads_;
  Bytes copy_;               ///< As large as the state: where loads and copies go.
  double copy_seconds_ = 0;  ///< Of the newest copy.
  std::map<TensorKey, Digest> digests_;
  metrics::Registry metrics_;
  std::unique_ptr<Writer> writer_;
  int64_t step_ = 0;
};

Status Serve(const std::string& folder, const std::string& root, int threads) {
  HEDDLE_ASSIGN_OR_RETURN(auto state, LoadState(folder));
  Bench bench(std::move(state), root, threads);
  HEDDLE_RETURN_IF_ERROR(bench.Start());
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    HEDDLE_ASSIGN_OR_RETURN(const std::string answer, bench.Run(command, words));
    std::cout << answer << std::endl;
  }
  return Status::Ok();
}

Status Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[0] == "make") {
    return MakeState(arguments[1], std::stoll(arguments[2]), arguments[3]);
  }
  if (arguments.size() == 4 && arguments[0] == "serve") {
    return Serve(arguments[1], arguments[2], std::stoi(arguments[3]));
  }
  return InvalidArgumentError(
      "usage: checkpoint_bench make CHECKPOINT BYTES FOLDER | serve FOLDER ROOT THREADS");
}

}  // namespace
}  // namespace heddle::checkpoint

int main(int argc, char** argv) {
  const heddle::Status status = heddle::checkpoint::Main({argv + 1, argv + argc});
  if (!status.ok()) {
    std::cerr << status.ToString() << "\n";
  }
  return status.ok() ? 0 : 1;
}
