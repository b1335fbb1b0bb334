#include "engine/runtime/kernels/cuda/cudnn_attention.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include "base/log.h"
#include "engine/runtime/device/cuda/cudnn_library.h"
#include "engine/runtime/kernels/cuda/operands.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // Of the frontend, which finds cuDNN's functions in it.
}

namespace heddle::runtime::cuda {
namespace {

namespace fe = cudnn_frontend;
using Operand = std::shared_ptr<fe::graph::Tensor_attributes>;

// A job meets a shape for training, one for evaluation, and a share's; a plan keeps code on the card.
// What is used longest ago is dropped, and would be built again as it was.
constexpr size_t kMostShapes = 16;
// The backward pass of Hopper needs 2 B for every element of the scores of all heads: without a
// limit, long sequences would find no memory. Not of free memory, which may not decide bits.
constexpr int64_t kMostWorkspace = int64_t{2} << 30;
constexpr uintptr_t kAlignment = 16;  // Of all operands, by the frontend's declarations.

enum Uid : int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

std::string Text(const AttentionShape& shape) {
  return fmt::format("attention of {} x {} tokens, {} heads of {}, {} key/value heads", shape.batch,
                     shape.length, shape.heads, shape.head_dim, shape.kv_heads);
}

bool Says(std::string_view message, std::string_view word) {
  return message.find(word) != std::string_view::npos;
}

// libtorch's exception, in one line: only the first is kept of it.
[[noreturn]] void Throw(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  if (Says(message, "ALLOC")) {
    C10_THROW_ERROR(OutOfMemoryError, message);
  }
  C10_THROW_ERROR(Error, message);
}

[[noreturn]] void Throw(const AttentionShape& shape, std::string_view what, std::string_view why) {
  Throw(fmt::format("cuDNN's {}: {}: {}", Text(shape), what, why));
}

void Check(fe::error_t error, const AttentionShape& shape, std::string_view what) {
  if (error.is_bad()) {
    Throw(shape, what, error.get_message());
  }
}

// Whether the answer is about the graph: it would be given again. Others may pass (missing memory),
// or say that the card failed.
bool IsRefusal(fe::error_code_t code, std::string_view message) {
  switch (code) {
    case fe::error_code_t::CUDA_API_FAILED:
    case fe::error_code_t::HANDLE_ERROR:
    case fe::error_code_t::INVALID_CUDA_DEVICE:
      return false;
    case fe::error_code_t::CUDNN_BACKEND_API_FAILED:
    case fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED:
      return (Says(message, "NOT_SUPPORTED") || Says(message, "BAD_PARAM")) &&
             !Says(message, "ALLOC");
    default:
      return true;
  }
}

// Whether cuDNN takes what it was asked for; throws what is not a refusal.
bool Accepts(fe::error_t error, const AttentionShape& shape) {
  if (error.is_good()) {
    return true;
  }
  const std::string message = error.get_message();
  if (!IsRefusal(error.get_code(), message)) {
    Throw(shape, "its plan", message);
  }
  LogInfo("cuDNN refuses {}: {}", Text(shape), message.substr(0, message.find('\n')));
  return false;
}

struct Plan {
  std::unique_ptr<fe::graph::Graph> graph;
  int64_t workspace = 0;
};
struct Plans {
  Plan forward;
  Plan gradient;
};

std::unique_ptr<fe::graph::Graph> NewGraph() {
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

// [B, T, heads * d] in memory, which cuDNN sees as [B, heads, T, d].
void Describe(fe::graph::Tensor_attributes& operand,
              Uid uid,
              const AttentionShape& shape,
              int64_t heads) {
  const int64_t width = heads * shape.head_dim;
  operand.set_uid(uid)
      .set_dim({shape.batch, heads, shape.length, shape.head_dim})
      .set_stride({shape.length * width, shape.head_dim, width, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

void DescribeLse(fe::graph::Tensor_attributes& lse, const AttentionShape& shape) {
  lse.set_uid(kLse)
      .set_dim({shape.batch, shape.heads, shape.length, 1})
      .set_stride({shape.heads * shape.length, shape.length, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

Operand Input(fe::graph::Graph& graph, Uid uid, const AttentionShape& shape, int64_t heads) {
  fe::graph::Tensor_attributes operand;
  Describe(operand, uid, shape, heads);
  return graph.tensor(operand);
}

float ScaleOf(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

std::unique_ptr<fe::graph::Graph> ForwardGraph(const AttentionShape& shape) {
  auto graph = NewGraph();
  const auto [o, lse] =
      graph->sdpa(Input(*graph, kQ, shape, shape.heads), Input(*graph, kK, shape, shape.kv_heads),
                  Input(*graph, kV, shape, shape.kv_heads),
                  fe::graph::SDPA_attributes()
                      .set_name("attention")
                      .set_generate_stats(true)
                      .set_causal_mask(true)
                      .set_attn_scale(ScaleOf(shape)));
  Describe(o->set_output(true), kO, shape, shape.heads);
  DescribeLse(lse->set_output(true), shape);
  return graph;
}

std::unique_ptr<fe::graph::Graph> GradientGraph(const AttentionShape& shape) {
  auto graph = NewGraph();
  fe::graph::Tensor_attributes lse;
  DescribeLse(lse, shape);
  const auto [dq, dk, dv] = graph->sdpa_backward(
      Input(*graph, kQ, shape, shape.heads), Input(*graph, kK, shape, shape.kv_heads),
      Input(*graph, kV, shape, shape.kv_heads), Input(*graph, kO, shape, shape.heads),
      Input(*graph, kDo, shape, shape.heads), graph->tensor(lse),
      fe::graph::SDPA_backward_attributes()
          .set_name("attention_gradient")
          .set_causal_mask(true)
          .set_attn_scale(ScaleOf(shape))
          .set_deterministic_algorithm(true));
  Describe(dq->set_output(true), kDq, shape, shape.heads);
  Describe(dk->set_output(true), kDk, shape, shape.kv_heads);
  Describe(dv->set_output(true), kDv, shape, shape.kv_heads);
  return graph;
}

// Nothing if it is refused. It takes the first of cuDNN's proposals that is not: the frontend's own
// choice would also pass over one for which there is no memory just now, and other bits would come.
std::optional<Plan> Build(cudnnHandle_t handle,
                          const AttentionShape& shape,
                          std::unique_ptr<fe::graph::Graph> graph) {
  if (!Accepts(graph->validate(), shape) || !Accepts(graph->build_operation_graph(handle), shape) ||
      !Accepts(graph->create_execution_plans({fe::HeurMode_t::A}), shape)) {
    return std::nullopt;
  }
  const int64_t proposals = graph->get_execution_plan_count();
  int64_t chosen = 0;
  while (chosen < proposals && !Accepts(graph->build_plan_at_index(chosen), shape)) {
    ++chosen;
  }
  if (chosen == proposals) {
    return std::nullopt;
  }
  Plan plan{.graph = std::move(graph)};
  Check(plan.graph->get_workspace_size(plan.workspace), shape, "the size of its workspace");
  if (plan.workspace > kMostWorkspace) {
    LogInfo("cuDNN's {} is not used: it needs {} B of workspace", Text(shape), plan.workspace);
    return std::nullopt;
  }
  return plan;
}

// cuDNN on one card, for one thread.
class Cudnn {
 public:
  Cudnn() {
    if (const cudnnStatus_t status = fe::detail::create_handle(&handle_);
        status != CUDNN_STATUS_SUCCESS) {
      Throw(fmt::format("cuDNN does not start: {}", fe::detail::get_error_string(status)));
    }
  }
  ~Cudnn() {
    shapes_.clear();
    static_cast<void>(fe::detail::destroy_handle(handle_));
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  // Null: the shape is refused. Good until the next call.
  const Plans* Find(const AttentionShape& shape) {
    auto found = shapes_.find(shape);
    if (found == shapes_.end()) {
      if (shapes_.size() == kMostShapes) {
        shapes_.erase(std::ranges::min_element(
            shapes_, {}, [](const auto& entry) { return entry.second.used; }));
      }
      found = shapes_.emplace(shape, Known{.plans = BuildBoth(shape)}).first;
    }
    found->second.used = ++calls_;
    return found->second.plans ? &*found->second.plans : nullptr;
  }

  void Execute(const AttentionShape& shape,
               const Plan& plan,
               std::unordered_map<int64_t, void*> operands,
               const at::Tensor& like) {
    if (const cudnnStatus_t status = fe::detail::set_stream(handle_, CurrentStream());
        status != CUDNN_STATUS_SUCCESS) {
      Throw(shape, "the stream", fe::detail::get_error_string(status));
    }
    const at::Tensor workspace = NewTensor(like, {std::max<int64_t>(plan.workspace, 1)}, at::kByte);
    Check(plan.graph->execute(handle_, operands, workspace.data_ptr()), shape, "its run");
  }

 private:
  struct Known {
    std::optional<Plans> plans;
    uint64_t used = 0;
  };

  std::optional<Plans> BuildBoth(const AttentionShape& shape) {
    auto forward = Build(handle_, shape, ForwardGraph(shape));
    auto gradient = forward ? Build(handle_, shape, GradientGraph(shape)) : std::nullopt;
    if (!gradient) {
      return std::nullopt;
    }
    return Plans{.forward = *std::move(forward), .gradient = *std::move(gradient)};
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionShape, Known> shapes_;
  uint64_t calls_ = 0;
};

// Null without cuDNN. Handles serve one stream at a time, so each thread has its own.
Cudnn* CudnnOf(const at::Tensor& tensor) {
  static const bool there = [] {
    fe::cudnn_dlhandle = CudnnLibrary();
    return fe::cudnn_dlhandle != nullptr;
  }();
  if (!there) {
    return nullptr;
  }
  thread_local std::map<int64_t, std::unique_ptr<Cudnn>> cards;
  std::unique_ptr<Cudnn>& cudnn = cards[tensor.get_device()];
  if (cudnn == nullptr) {
    cudnn = std::make_unique<Cudnn>();
  }
  return cudnn.get();
}

// As the plans take it: most values are so already.
at::Tensor Dense(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return reinterpret_cast<uintptr_t>(dense.data_ptr()) % kAlignment == 0 ? dense : dense.clone();
}

std::vector<at::Tensor> Dense(Inputs in) {
  std::vector<at::Tensor> dense;
  for (const at::Tensor& tensor : in) {
    dense.push_back(Dense(tensor));
  }
  return dense;
}

}  // namespace

std::optional<Tensors> CudnnAttention(const AttentionShape& shape, Inputs in) {
  Cudnn* const cudnn = CudnnOf(in[0]);
  const Plans* const plans = cudnn == nullptr ? nullptr : cudnn->Find(shape);
  if (plans == nullptr) {
    return std::nullopt;
  }
  const Tensors dense = Dense(in);
  at::Tensor o = at::empty_like(dense[0]);
  at::Tensor lse = NewTensor(o, {shape.batch, shape.heads, shape.length}, at::kFloat);
  cudnn->Execute(shape, plans->forward,
                 {{kQ, dense[0].data_ptr()},
                  {kK, dense[1].data_ptr()},
                  {kV, dense[2].data_ptr()},
                  {kO, o.data_ptr()},
                  {kLse, lse.data_ptr()}},
                 o);
  return Tensors{o, lse};
}

std::optional<Tensors> CudnnAttentionGradient(const AttentionShape& shape, Inputs in) {
  Cudnn* const cudnn = CudnnOf(in[0]);
  const Plans* const plans = cudnn == nullptr ? nullptr : cudnn->Find(shape);
  if (plans == nullptr) {
    return std::nullopt;
  }
  const Tensors dense = Dense(in);
  at::Tensor dq = at::empty_like(dense[1]);
  at::Tensor dk = at::empty_like(dense[2]);
  at::Tensor dv = at::empty_like(dense[3]);
  cudnn->Execute(shape, plans->gradient,
                 {{kDo, dense[0].data_ptr()},
                  {kQ, dense[1].data_ptr()},
                  {kK, dense[2].data_ptr()},
                  {kV, dense[3].data_ptr()},
                  {kO, dense[4].data_ptr()},
                  {kLse, dense[5].data_ptr()},
                  {kDq, dq.data_ptr()},
                  {kDk, dk.data_ptr()},
                  {kDv, dv.data_ptr()}},
                 dq);
  return Tensors{dq, dk, dv};
}

}  // namespace heddle::runtime::cuda
