#include <algorithm>
#include <memory>
#include <vector>

#include <cuda_runtime.h>
#include <ucontext.h>

namespace hosted {

dim3 thread_index = 0;
dim3 block_index = 0;
dim3 block_size = 0;

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  bool done = false;
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  ucontext_t scheduler{};
  const std::function<void()>* kernel = nullptr;
  std::vector<double> values;
};

Block& TheBlock() {
  static Block block;
  return block;
}

void RunKernel() {
  Block& block = TheBlock();
  (*block.kernel)();
  block.fibers[thread_index.x]->done = true;
  swapcontext(&block.fibers[thread_index.x]->context, &block.scheduler);
}

void RunBlock(unsigned threads, const std::function<void()>& kernel) {
  Block& block = TheBlock();
  block.kernel = &kernel;
  block.values.assign(threads, 0);
  while (block.fibers.size() < threads) {
    block.fibers.push_back(std::make_unique<Fiber>());
  }
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = *block.fibers[i];
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &RunKernel, 0);
  }
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (unsigned i = 0; i < threads; ++i) {
      if (Fiber& fiber = *block.fibers[i]; !fiber.done) {
        thread_index.x = i;
        swapcontext(&block.scheduler, &fiber.context);
        all_done = all_done && fiber.done;
      }
    }
  }
}

}  // namespace

void Launch(dim3 blocks, dim3 threads, const std::function<void()>& kernel) {
  block_size = threads;
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      block_index = dim3(x, y);
      RunBlock(threads.x, kernel);
    }
  }
}

void Barrier() {
  Block& block = TheBlock();
  swapcontext(&block.fibers[thread_index.x]->context, &block.scheduler);
}

double Exchange(double value, unsigned mask) {
  Block& block = TheBlock();
  block.values[thread_index.x] = value;
  Barrier();
  const double other = block.values[thread_index.x ^ mask];
  Barrier();
  return other;
}

bool All(bool value) {
  Block& block = TheBlock();
  block.values[thread_index.x] = value ? 1 : 0;
  Barrier();
  const bool all = std::ranges::all_of(block.values, [](double one) { return one != 0; });
  Barrier();
  return all;
}

}  // namespace hosted
