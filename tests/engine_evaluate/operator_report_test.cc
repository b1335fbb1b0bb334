// Kernels that are wrong in one way each are named, and right ones are not.
#include "engine/evaluate/operator_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/kernel.h"
#include "engine/runtime/kernel_registry.h"

namespace heddle::evaluate {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using Tensors = std::vector<at::Tensor>;
using Inputs = std::span<const at::Tensor>;
using Wrong = std::function<void(const graph::Node& node, Inputs in, Tensors& out)>;

job::JobConfig JobOf(graph::ModelFamily family, DType precision) {
  job::JobConfig job;
  job.name = "ops";
  job.model = {.family = family,
               .vocab_size = 97,
               .hidden_size = 64,
               .intermediate_size = family == graph::ModelFamily::kGpt2 ? 256 : 80,
               .num_hidden_layers = 1,
               .num_attention_heads = 4,
               .num_key_value_heads = family == graph::ModelFamily::kGpt2 ? 4 : 2,
               .max_position_embeddings = 64,
               .qkv_bias = family == graph::ModelFamily::kLlama,
               .dropout = family == graph::ModelFamily::kGpt2 ? 0.1 : 0};
  job.batch = {.microbatch = 2, .global = 4, .sequence = 24};
  job.precision = precision;
  return job;
}

OperatorReport ReportOf(const job::JobConfig& job) {
  Result<OperatorReport> report = ReportOperators(job, "cpu", 2);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *std::move(report) : OperatorReport();
}

/// A kernel that is wrong while it lives, but right in fp64.
class PlantedKernel {
 public:
  PlantedKernel(const std::string& op, Wrong wrong) : op_(op) {
    wrong_ = std::move(wrong);
    right_ = runtime::ReplaceKernel(op_, &Run);
  }
  ~PlantedKernel() { runtime::ReplaceKernel(op_, right_); }
  PlantedKernel(const PlantedKernel&) = delete;
  PlantedKernel& operator=(const PlantedKernel&) = delete;
  static Kernel right() { return right_; }

 private:
  static Tensors Run(const graph::Node& node, Inputs in, const KernelContext& context) {
    Tensors out = right_(node, in, context);
    const bool exact = std::ranges::all_of(in, [](const at::Tensor& tensor) {
      return tensor.scalar_type() == at::kDouble || !tensor.is_floating_point();
    });
    if (!exact) {
      wrong_(node, in, out);
    }
    return out;
  }

  static inline Kernel right_ = nullptr;
  static inline Wrong wrong_;
  const std::string op_;
};

at::Tensor Rows(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

struct Fault {
  std::string what;
  std::string op;
  graph::ModelFamily family;
  Wrong wrong;
};

// Faults that devices and libraries have had: coarser sums and products, other formulas, other
// edges, lost and repeated parts.

std::vector<Fault> FaultsOfProducts() {
  constexpr auto kLlama = graph::ModelFamily::kLlama;
  return {
      {"products of ten bits", "linear", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         const at::Tensor y =
             at::matmul(in[0].to(at::kHalf).to(at::kFloat), in[1].to(at::kHalf).to(at::kFloat).t());
         out[0] = (in.size() > 2 ? y + in[2] : y).to(out[0].scalar_type());
       }},
      {"a bias is added twice", "linear", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = in.size() > 2 ? (out[0] + in[2]).to(out[0].scalar_type()) : out[0];
       }},
      {"the last column is lost", "linear_input_gradient", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { out[0].select(-1, -1).zero_(); }},
      {"the result before is added", "linear_weight_gradient", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { out[0] = out[0] * 2; }},
      {"gradients are kept in bf16", "linear_weight_gradient", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) {
         out[0] = out[0].to(at::kBFloat16).to(out[0].scalar_type());
       }},
  };
}

std::vector<Fault> FaultsOfNorms() {
  constexpr auto kLlama = graph::ModelFamily::kLlama;
  return {
      {"an epsilon of its own", "rms_norm", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         const at::Tensor x = in[0].to(at::kFloat);
         const at::Tensor rstd = at::rsqrt(x.square().mean(-1) + 1e-3);
         out[0] = (x * rstd.unsqueeze(-1) * in[1]).to(out[0].scalar_type());
       }},
      {"an approximate root", "rms_norm", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { out[1] = out[1] * (1 + 1e-4); }},
      {"dx lacks the mean", "rms_norm_input_gradient", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = (in[0].to(at::kFloat) * in[2] * in[3].unsqueeze(-1)).to(out[0].scalar_type());
       }},
      {"the last row is not added", "rms_norm_weight_gradient", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         const at::Tensor last = Rows(in[0])[-1] * Rows(in[1])[-1];
         out[0] = out[0] - last.to(at::kFloat) * in[2].reshape({-1})[-1];
       }},
  };
}

std::vector<Fault> FaultsOfLayers() {
  constexpr auto kLlama = graph::ModelFamily::kLlama;
  return {
      {"the mask is off by one", "attention", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { out[0] = out[0].roll(1, 1); }},
      {"the denominator is of half as many keys", "attention", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) {
         out[1] = out[1] - std::numbers::ln2;
       }},
      {"a group's last head is lost", "attention_gradient", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { out[1] = out[1] * 0.5; }},
      {"the angle has the other sign", "rope", kLlama,
       [](const auto& node, Inputs in, Tensors& out) {
         graph::Node other = node;
         other.attributes.Set("inverse", 1 - node.attributes.FindInt("inverse").value_or(0));
         out = PlantedKernel::right()(other, in, KernelContext());
       }},
      {"a fast exponential function", "swiglu", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { out[0] = out[0] * (1 - 1e-4); }},
      {"the outputs are exchanged", "swiglu_gradient", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) { std::swap(out[0], out[1]); }},
      {"an element is left out", "add", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = out[0].clone();
         out[0].view({-1})[7] = in[0].reshape({-1})[7];
       }},
  };
}

std::vector<Fault> FaultsOfEnds() {
  constexpr auto kLlama = graph::ModelFamily::kLlama;
  return {
      {"rows begin at one", "embedding", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = in[1].roll(-1, 0).index({in[0].to(at::kLong)});
       }},
      {"one of equal tokens wins", "embedding_weight_gradient", kLlama,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = out[0].clone();
         out[0].index_put_({in[1].to(at::kLong).reshape({-1})},
                           Rows(in[0]).to(out[0].scalar_type()));
       }},
      {"an infinite maximum", "cross_entropy", kLlama,
       [](const auto& /*node*/, Inputs /*in*/, Tensors& out) {
         out[1] = out[1].clone();
         out[1].view({-1})[3] = std::numeric_limits<double>::quiet_NaN();
       }},
      {"the target keeps its one", "cross_entropy_gradient", kLlama,
       [](const auto& node, Inputs in, Tensors& out) {
         const double scale = node.attributes.Float("scale");
         const at::Tensor target = in[1].to(at::kLong).unsqueeze(-1);
         out[0] = out[0].scatter_add(-1, target, at::full_like(target, scale, out[0].options()));
       }},
  };
}

std::vector<Fault> FaultsOfGpt2() {
  constexpr auto kGpt2 = graph::ModelFamily::kGpt2;
  return {
      {"the exact form of gelu", "gelu", kGpt2,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = at::gelu(in[0].to(at::kFloat)).to(out[0].scalar_type());
       }},
      {"a variance of one row less", "layer_norm", kGpt2,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         const double n = static_cast<double>(in[0].size(-1));
         out[2] = out[2] * std::sqrt((n - 1) / n);
       }},
      {"the first row is not added", "bias_gradient", kGpt2,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = out[0] - Rows(in[0])[0].to(out[0].scalar_type());
       }},
      {"positions begin at one", "add_position", kGpt2,
       [](const auto& /*node*/, Inputs in, Tensors& out) {
         out[0] = in[0] + in[1].slice(0, 1, 1 + in[0].size(1));
       }},
      {"what is kept is not scaled", "dropout", kGpt2,
       [](const auto& node, Inputs /*in*/, Tensors& out) {
         out[0] = out[0] * (1 - node.attributes.Float("p"));
       }},
  };
}

std::vector<Fault> Faults() {
  std::vector<Fault> all;
  for (const auto& faults :
       {FaultsOfProducts(), FaultsOfNorms(), FaultsOfLayers(), FaultsOfEnds(), FaultsOfGpt2()}) {
    all.insert(all.end(), faults.begin(), faults.end());
  }
  return all;
}

std::vector<std::string> NamesOfFaulty(const OperatorReport& right, const OperatorReport& other) {
  const auto comparisons = CompareReports(right, other);
  EXPECT_TRUE(comparisons.ok()) << comparisons.status().ToString();
  std::vector<std::string> names;
  for (const OperatorComparison& each : *comparisons) {
    EXPECT_EQ(each.first_fault, "") << each.signature;
    if (!each.second_fault.empty() && (names.empty() || names.back() != each.op)) {
      names.push_back(each.op);
    }
  }
  return names;
}

TEST(OperatorReportTest, AWrongKernelIsNamedAndNoOther) {
  for (const auto family : {graph::ModelFamily::kLlama, graph::ModelFamily::kGpt2}) {
    const job::JobConfig job = JobOf(family, DType::kF32);
    const OperatorReport right = ReportOf(job);
    for (const Fault& fault : Faults()) {
      if (fault.family != family) {
        continue;
      }
      SCOPED_TRACE(fault.what);
      const PlantedKernel planted(fault.op, fault.wrong);
      const auto named = NamesOfFaulty(right, ReportOf(job));
      EXPECT_FALSE(named.empty());
      for (const std::string& name : named) {
        EXPECT_EQ(name, fault.op);
      }
    }
  }
}

// fp32 statistics of bf16 values are judged as fp32 if the other kind's are that exact.
TEST(OperatorReportTest, AStatisticThatIsCoarserThanTheOthersIsNamed) {
  const job::JobConfig job = JobOf(graph::ModelFamily::kLlama, DType::kBF16);
  const OperatorReport right = ReportOf(job);
  const PlantedKernel planted("rms_norm", [](const auto& /*node*/, Inputs /*in*/, Tensors& out) {
    out[1] = out[1] * (1 + 1e-4);
  });
  EXPECT_THAT(NamesOfFaulty(right, ReportOf(job)), testing::ElementsAre("rms_norm"));
}

// The plain form of a kernel is another library's for this purpose.
TEST(OperatorReportTest, RightKernelsAreNotNamed) {
  for (const auto family : {graph::ModelFamily::kLlama, graph::ModelFamily::kGpt2}) {
    for (const DType precision : {DType::kF32, DType::kBF16}) {
      const job::JobConfig job = JobOf(family, precision);
      const OperatorReport loops = ReportOf(job);
      runtime::PreferPlainAten(true);
      const OperatorReport plain = ReportOf(job);
      runtime::PreferPlainAten(false);
      EXPECT_THAT(NamesOfFaulty(loops, plain), testing::IsEmpty());
      EXPECT_THAT(NamesOfFaulty(plain, loops), testing::IsEmpty());
    }
  }
}

TEST(OperatorReportTest, AReportIsReadAsItWasWritten) {
  const OperatorReport report = ReportOf(JobOf(graph::ModelFamily::kLlama, DType::kF32));
  const std::string json = OperatorReportToJson(report);
  const Result<OperatorReport> read = OperatorReportFromJson(json);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(OperatorReportToJson(*read), json);
  const auto comparisons = CompareReports(report, *read);
  ASSERT_TRUE(comparisons.ok());
  for (const OperatorComparison& each : *comparisons) {
    EXPECT_TRUE(each.same_bits) << each.signature;
    EXPECT_EQ(each.difference, 0) << each.signature;
  }
}

TEST(OperatorReportTest, ReportsOfOtherJobsAreRefused) {
  const OperatorReport a = ReportOf(JobOf(graph::ModelFamily::kLlama, DType::kF32));
  const OperatorReport b = ReportOf(JobOf(graph::ModelFamily::kGpt2, DType::kF32));
  EXPECT_EQ(CompareReports(a, b).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CompareReports(b, a).status().code(), StatusCode::kInvalidArgument);
  for (const char* json : {"", "{}", "[1]", R"({"operator_report": 2})"}) {
    EXPECT_EQ(OperatorReportFromJson(json).status().code(), StatusCode::kInvalidArgument) << json;
  }
}

}  // namespace
}  // namespace heddle::evaluate
