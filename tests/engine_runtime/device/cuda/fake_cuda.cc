#include "tests/engine_runtime/device/cuda/fake_cuda.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <cuda_runtime_api.h>

#include "base/mutex.h"
#include "base/random.h"

// What CUDA's handles point to. A point is one recording of an event: what waits for it does so even
// if the event is recorded anew elsewhere.
struct Point {
  CUstream_st* stream = nullptr;
  bool ended = false;
};
struct CUevent_st {
  std::shared_ptr<Point> newest;
};
struct CUstream_st {
  struct Piece {
    std::function<void()> run;
    std::shared_ptr<Point> awaited = nullptr;  ///< Runs when it has been reached.
  };
  std::deque<Piece> pieces;
};

namespace heddle::runtime::cuda::testing {
namespace {

struct State {
  Random random = Random(0);
  bool held = false;
  bool exhausted = false;
  int failure = cudaSuccess;
  std::map<const char*, size_t> locked;  ///< By address, with their sizes.
};

Mutex mutex;

State& TheState() {
  static State state;
  return state;
}

// Runs the piece without which the stream's first one cannot run.
void RunOne(CUstream_st* stream) {
  for (;;) {
    const auto& first = stream->pieces.front();
    if (first.awaited == nullptr || first.awaited->ended) {
      const auto run = first.run;
      stream->pieces.pop_front();
      if (run) {
        run();
      }
      return;
    }
    stream = first.awaited->stream;
  }
}

void Put(CUstream_st* stream, std::function<void()> run) {
  const MutexLock lock(mutex);
  stream->pieces.push_back({.run = std::move(run)});
}

}  // namespace

void ResetCuda(uint64_t seed) {
  const MutexLock lock(mutex);
  State& state = TheState();
  state.random = Random(seed);
  state.held = false;
  state.exhausted = false;
  state.failure = cudaSuccess;
}

void HoldCuda(bool held) {
  const MutexLock lock(mutex);
  TheState().held = held;
}

void FailCuda(int code) {
  const MutexLock lock(mutex);
  TheState().failure = code;
}

int64_t LockedBytes() {
  const MutexLock lock(mutex);
  int64_t bytes = 0;
  for (const auto& [address, size] : TheState().locked) {
    bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

void ExhaustHost() {
  const MutexLock lock(mutex);
  TheState().exhausted = true;
}

}  // namespace heddle::runtime::cuda::testing

using heddle::MutexLock;
using heddle::runtime::cuda::testing::mutex;
using heddle::runtime::cuda::testing::Put;
using heddle::runtime::cuda::testing::RunOne;
using heddle::runtime::cuda::testing::TheState;

extern "C" {

cudaError_t cudaSetDevice(int /*device*/) {
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "another";
}

const char* cudaGetErrorString(cudaError_t /*error*/) {
  return "an illegal memory access was encountered";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int /*flags*/) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int /*flags*/) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto point = std::make_shared<Point>(Point{.stream = stream});
  {
    const MutexLock lock(mutex);
    event->newest = point;
  }
  Put(stream, [point] { point->ended = true; });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
  const MutexLock lock(mutex);
  stream->pieces.push_back({.run = {}, .awaited = event->newest});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const MutexLock lock(mutex);
  auto& state = TheState();
  if (state.failure != cudaSuccess) {
    return static_cast<cudaError_t>(state.failure);
  }
  const Point& point = *event->newest;
  if (!point.ended && !state.held && state.random.Below(3) == 0) {
    RunOne(point.stream);
  }
  return point.ended ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const MutexLock lock(mutex);
  if (!begin->newest->ended || !end->newest->ended) {
    return cudaErrorNotReady;
  }
  *milliseconds = 2;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  Put(stream, [to, from, bytes] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Put(stream, [function, data] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int /*flags*/) {
  const MutexLock lock(mutex);
  if (TheState().exhausted) {
    return cudaErrorMemoryAllocation;
  }
  *memory = std::malloc(bytes);
  TheState().locked[static_cast<const char*>(*memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const MutexLock lock(mutex);
  TheState().locked.erase(static_cast<const char*>(memory));
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned int /*flags*/) {
  const MutexLock lock(mutex);
  TheState().locked[static_cast<const char*>(memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  const MutexLock lock(mutex);
  TheState().locked.erase(static_cast<const char*>(memory));
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const MutexLock lock(mutex);
  const auto* const byte = static_cast<const char*>(address);
  auto& locked = TheState().locked;
  const auto after = locked.upper_bound(byte);
  const bool is_locked =
      after != locked.begin() && byte < std::prev(after)->first + std::prev(after)->second;
  attributes->type = is_locked ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
}
