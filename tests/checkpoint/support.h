/// \file
/// A training state in memory, cut at random, saved and loaded: what the checkpoint tests share.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/system/file.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/types.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/save/writer.h"
#include "checkpoint/store/store.h"
#include "metrics/registry.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::checkpoint {

using testing::TestSeed;

/// How often a test tries: as the tier says, or the environment's `variable` (scripts/acceptance).
inline int Rounds(const char* variable, int quick, int check, int full) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : testing::Scaled(quick, check, full);
}

/// Whole tensors, row-major.
struct State {
  std::vector<TensorInfo> tensors;
  std::vector<Bytes> bytes;
};

/// Elements that compress like weights: bytes of noise with a narrow top byte.
inline Bytes WeightBytes(const TensorInfo& info, Random& random) {
  Bytes bytes(static_cast<size_t>(ElementCount(info.shape) * SizeOf(info.dtype)));
  const auto size = static_cast<size_t>(SizeOf(info.dtype));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool top = i % size == size - 1;
    bytes[i] = static_cast<std::byte>(top ? 0x3C + random.Below(3) : random.Below(256));
  }
  return bytes;
}

inline void AddTensor(State& state, TensorInfo info, Random& random) {
  state.bytes.push_back(WeightBytes(info, random));
  state.tensors.push_back(std::move(info));
}

/// The state of a step: a function of the step alone.
inline State StateOf(int64_t step) {
  State state;
  Random random(static_cast<uint64_t>(step) + 1000);
  AddTensor(state, {"w", "master", DType::kF32, {200, 100}}, random);
  AddTensor(state, {"w", "exp_avg", DType::kF32, {200, 100}}, random);
  return state;
}

/// Cuts `box` into at most `pieces` boxes by random cuts along random dimensions.
inline std::vector<Box> RandomSplit(const Box& box, int pieces, Random& random) {
  std::vector<Box> boxes = {box};
  for (int attempt = 1; attempt < pieces; ++attempt) {
    const size_t victim = random.Below(boxes.size());
    if (boxes[victim].extent.empty()) {
      break;
    }
    const size_t d = random.Below(boxes[victim].extent.size());
    if (boxes[victim].extent[d] < 2) {
      continue;
    }
    const int64_t cut = random.Between(1, boxes[victim].extent[d] - 1);
    Box rest = boxes[victim];
    boxes[victim].extent[d] = cut;
    rest.offset[d] += cut;
    rest.extent[d] -= cut;
    boxes.push_back(rest);
  }
  return boxes;
}

/// The elements of `box`, taken out by an element-wise walk that shares no code with the library.
inline Bytes Extract(const Bytes& whole, const TensorInfo& info, const Box& box) {
  const auto size = static_cast<size_t>(SizeOf(info.dtype));
  Bytes out;
  const int64_t count = ElementCount(box.extent);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t position = 0;
    int64_t stride = 1;
    for (size_t d = box.extent.size(); d-- > 0;) {
      position += (box.offset[d] + rest % box.extent[d]) * stride;
      rest /= box.extent[d];
      stride *= info.shape[d];
    }
    const auto* from = whole.data() + static_cast<size_t>(position) * size;
    out.insert(out.end(), from, from + size);
  }
  return out;
}

/// Which worker writes which boxes of which tensor.
struct Piece {
  size_t tensor = 0;
  Box box;
  size_t worker = 0;
};

inline std::vector<Piece> RandomPieces(const State& state,
                                       size_t workers,
                                       int pieces,
                                       Random& random) {
  std::vector<Piece> list;
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    for (const Box& box : RandomSplit(WholeBox(state.tensors[t].shape), pieces, random)) {
      list.push_back({.tensor = t, .box = box, .worker = random.Below(workers)});
    }
  }
  return list;
}

/// Reads all pieces in one call and compares them with the state.
inline void ExpectReads(const Reader& reader,
                        const State& state,
                        const std::vector<Piece>& pieces,
                        int threads) {
  std::vector<Bytes> memory;
  for (const Piece& piece : pieces) {
    memory.emplace_back(static_cast<size_t>(ElementCount(piece.box.extent) *
                                            SizeOf(state.tensors[piece.tensor].dtype)),
                        std::byte{0xAA});
  }
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < pieces.size(); ++i) {
    requests.push_back(
        {.key = state.tensors[pieces[i].tensor].key(), .box = pieces[i].box, .out = memory[i]});
  }
  const Status status = reader.ReadBoxes(requests, threads);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t t = pieces[i].tensor;
    ASSERT_TRUE(memory[i] == Extract(state.bytes[t], state.tensors[t], pieces[i].box))
        << state.tensors[t].name << " " << ToString(pieces[i].box);
  }
}

struct SaveSetup {
  std::string root;
  int64_t step = 1;
  int64_t generation = 1;
  size_t workers = 1;
  int64_t chunk_bytes = int64_t{1} << 20;
  int64_t staging_limit_bytes = int64_t{1} << 40;
  int codec_threads = 2;
  int niceness = 0;
  bool round_moments = false;  ///< fp32 moments are stored as bf16.
};

/// What a worker holds of the pieces, its elements in `held`.
inline std::vector<BoxView> ViewsOf(const State& state,
                                    const std::vector<Piece>& pieces,
                                    size_t worker,
                                    std::vector<Bytes>& held) {
  std::vector<BoxView> views;
  for (const Piece& piece : pieces) {
    if (piece.worker == worker) {
      const TensorInfo& info = state.tensors[piece.tensor];
      held.push_back(Extract(state.bytes[piece.tensor], info, piece.box));
      views.push_back(
          {.stored = {info.name, info.role, info.dtype, info.shape, piece.box}, .bytes = {}});
    }
  }
  for (size_t i = 0; i < views.size(); ++i) {
    views[i].bytes = held[i];
  }
  return views;
}

/// Writes the pieces with one writer a worker; the reports, in the order of the workers.
inline Result<std::vector<FilePart>> WriteParts(const SaveSetup& setup,
                                                const State& state,
                                                const std::vector<Piece>& pieces,
                                                metrics::Registry& metrics) {
  std::vector<FilePart> parts;
  for (size_t worker = 0; worker < setup.workers; ++worker) {
    std::vector<Bytes> held;
    std::vector<BoxView> views = ViewsOf(state, pieces, worker, held);
    for (BoxView& view : views) {
      StoredBox& stored = view.stored;
      if (setup.round_moments && stored.role.starts_with("exp_avg") &&
          stored.dtype == DType::kF32) {
        stored.stored_as = DType::kBF16;
      }
    }
    HEDDLE_ASSIGN_OR_RETURN(auto writer,
                            Writer::Create({.root = setup.root,
                                            .name = fmt::format("w{}", worker),
                                            .codec_threads = setup.codec_threads,
                                            .niceness = setup.niceness,
                                            .staging_limit_bytes = setup.staging_limit_bytes,
                                            .chunk_bytes = setup.chunk_bytes},
                                           metrics));
    HEDDLE_RETURN_IF_ERROR(
        writer->Snapshot({.step = setup.step, .generation = setup.generation}, views).status());
    for (Bytes& bytes :
         held) {  // The snapshot is a copy: what happens to the memory now must not show.
      std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
    }
    HEDDLE_ASSIGN_OR_RETURN(auto part, writer->Wait(After(std::chrono::seconds(60))));
    // Reports travel as text.
    HEDDLE_ASSIGN_OR_RETURN(part, DecodePart(EncodePart(part)));
    parts.push_back(std::move(part));
  }
  return parts;
}

inline JobState TestJob() {
  return {.job_hash = "0123abcd",
          .job_yaml = "steps: 40\nname: \"caf\xC3\xA9\"\n",
          .model = R"({"model_type": "llama"})",
          .plan = R"({"pipelines":[]})",
          .extra = "{}",
          .samples_consumed = 640};
}

inline Result<CommitInfo> Save(const SaveSetup& setup,
                               const State& state,
                               const std::vector<Piece>& pieces,
                               metrics::Registry& metrics) {
  HEDDLE_ASSIGN_OR_RETURN(auto parts, WriteParts(setup, state, pieces, metrics));
  return Commit({.root = setup.root,
                 .step = setup.step,
                 .generation = setup.generation,
                 .job = TestJob(),
                 .expected = state.tensors,
                 .parts = std::move(parts)},
                metrics);
}

}  // namespace heddle::checkpoint
