#include "python/kernel_bindings.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>

#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/peak.h"
#include "kernels/thread_pool.h"
#include "kernels/transpose.h"

namespace py = pybind11;

namespace neuron {
namespace {

kernels::Isa ChooseIsa(const std::string& name) {
  return name.empty() ? kernels::ActiveIsa() : kernels::ParseIsa(name);
}

// Strides are (batch, row, column), in elements; addresses are integers, 0 for null.
void RunGemm(const std::string& dtype, std::array<int64_t, 4> batch_m_n_k, uintptr_t a,
             std::array<int64_t, 3> a_strides, uintptr_t b, std::array<int64_t, 3> b_strides,
             uintptr_t c, std::array<int64_t, 3> c_strides, double alpha, double beta, uintptr_t d,
             std::array<int64_t, 3> d_strides, const std::string& isa) {
  kernels::GemmArgs g;
  g.dtype = ParseDType(dtype);
  g.batch = batch_m_n_k[0];
  g.m = batch_m_n_k[1];
  g.n = batch_m_n_k[2];
  g.k = batch_m_n_k[3];
  g.a = reinterpret_cast<const void*>(a);
  g.a_batch_stride = a_strides[0];
  g.a_row_stride = a_strides[1];
  g.a_col_stride = a_strides[2];
  g.b = reinterpret_cast<const void*>(b);
  g.b_batch_stride = b_strides[0];
  g.b_row_stride = b_strides[1];
  g.b_col_stride = b_strides[2];
  g.c = reinterpret_cast<void*>(c);
  g.c_batch_stride = c_strides[0];
  g.c_row_stride = c_strides[1];
  g.c_col_stride = c_strides[2];
  g.alpha = alpha;
  g.beta = beta;
  g.d = reinterpret_cast<const void*>(d);
  g.d_batch_stride = d_strides[0];
  g.d_row_stride = d_strides[1];
  g.d_col_stride = d_strides[2];
  const kernels::Isa chosen = ChooseIsa(isa);
  const py::gil_scoped_release release;
  kernels::Gemm(g, chosen);
}

// What attention and its gradient take alike. sizes: batch, heads, kv_heads, q_len, kv_len,
// head_dim, v_dim. Strides in elements. dropout: probability, seed, offset.
struct AttentionCall {
  std::string dtype;
  std::array<int64_t, 7> sizes;
  std::array<uintptr_t, 4> q_k_v_out;
  std::array<std::array<int64_t, 4>, 4> strides;
  bool causal;
  double scale;
  uintptr_t bias;
  std::string bias_dtype;
  std::array<int64_t, 4> bias_strides;
  uintptr_t lse;
  std::array<int64_t, 3> lse_strides;
  std::tuple<double, uint64_t, uint64_t> dropout;
};

kernels::AttentionArgs ToArgs(const AttentionCall& call) {
  kernels::AttentionArgs a;
  a.dtype = ParseDType(call.dtype);
  int64_t* const fields[] = {&a.batch,  &a.heads,    &a.kv_heads, &a.q_len,
                             &a.kv_len, &a.head_dim, &a.v_dim};
  for (size_t i = 0; i < call.sizes.size(); ++i) *fields[i] = call.sizes[i];
  a.q = reinterpret_cast<const void*>(call.q_k_v_out[0]);
  a.k = reinterpret_cast<const void*>(call.q_k_v_out[1]);
  a.v = reinterpret_cast<const void*>(call.q_k_v_out[2]);
  a.out = reinterpret_cast<void*>(call.q_k_v_out[3]);
  std::copy_n(call.strides[0].begin(), 4, a.q_strides);
  std::copy_n(call.strides[1].begin(), 4, a.k_strides);
  std::copy_n(call.strides[2].begin(), 4, a.v_strides);
  std::copy_n(call.strides[3].begin(), 4, a.out_strides);
  a.causal = call.causal;
  a.scale = call.scale;
  a.bias = reinterpret_cast<const void*>(call.bias);
  a.bias_dtype = ParseDType(call.bias_dtype);
  std::copy_n(call.bias_strides.begin(), 4, a.bias_strides);
  a.lse = reinterpret_cast<float*>(call.lse);
  std::copy_n(call.lse_strides.begin(), 3, a.lse_strides);
  std::tie(a.dropout, a.seed, a.offset) = call.dropout;
  return a;
}

void RunAttention(const std::string& dtype, std::array<int64_t, 7> sizes,
                  std::array<uintptr_t, 4> q_k_v_out, std::array<std::array<int64_t, 4>, 4> strides,
                  bool causal, double scale, uintptr_t bias, const std::string& bias_dtype,
                  std::array<int64_t, 4> bias_strides, uintptr_t lse,
                  std::array<int64_t, 3> lse_strides, const std::string& isa,
                  std::tuple<double, uint64_t, uint64_t> dropout) {
  const auto args = ToArgs({dtype, sizes, q_k_v_out, strides, causal, scale, bias, bias_dtype,
                            bias_strides, lse, lse_strides, dropout});
  const kernels::Isa chosen = ChooseIsa(isa);
  const py::gil_scoped_release release;
  kernels::Attention(args, chosen);
}

// gradients: of out, then of q, k, v (0: not wanted).
void RunAttentionGrad(const std::string& dtype, std::array<int64_t, 7> sizes,
                      std::array<uintptr_t, 4> q_k_v_out,
                      std::array<std::array<int64_t, 4>, 4> strides, bool causal, double scale,
                      uintptr_t bias, const std::string& bias_dtype,
                      std::array<int64_t, 4> bias_strides, uintptr_t lse,
                      std::array<int64_t, 3> lse_strides, const std::string& isa,
                      std::tuple<double, uint64_t, uint64_t> dropout,
                      std::array<uintptr_t, 4> gradients,
                      std::array<std::array<int64_t, 4>, 4> gradient_strides) {
  kernels::AttentionGradArgs g;
  g.forward = ToArgs({dtype, sizes, q_k_v_out, strides, causal, scale, bias, bias_dtype,
                      bias_strides, lse, lse_strides, dropout});
  g.grad = reinterpret_cast<const void*>(gradients[0]);
  g.dq = reinterpret_cast<void*>(gradients[1]);
  g.dk = reinterpret_cast<void*>(gradients[2]);
  g.dv = reinterpret_cast<void*>(gradients[3]);
  int64_t* const to[] = {g.grad_strides, g.dq_strides, g.dk_strides, g.dv_strides};
  for (size_t i = 0; i < 4; ++i) std::copy_n(gradient_strides[i].begin(), 4, to[i]);
  const kernels::Isa chosen = ChooseIsa(isa);
  const py::gil_scoped_release release;
  kernels::AttentionGrad(g, chosen);
}

// sizes: batch, groups, in channels, out channels; window: in, out, kernel, stride, padding,
// dilation, three each. Addresses and strides of x, w and y.
void RunConvolution(const std::string& dtype, std::array<int64_t, 4> sizes,
                    std::array<std::array<int64_t, 3>, 6> window, bool transposed,
                    std::array<uintptr_t, 3> x_w_y, std::array<std::array<int64_t, 5>, 3> strides,
                    uintptr_t bias, int64_t bias_stride, const std::string& isa) {
  kernels::ConvArgs a;
  a.dtype = ParseDType(dtype);
  a.batch = sizes[0];
  a.groups = sizes[1];
  a.in_channels = sizes[2];
  a.out_channels = sizes[3];
  int64_t* const fields[] = {a.in, a.out, a.kernel, a.stride, a.padding, a.dilation};
  for (size_t i = 0; i < 6; ++i) std::copy_n(window[i].begin(), 3, fields[i]);
  a.transposed = transposed;
  a.x = reinterpret_cast<const void*>(x_w_y[0]);
  a.w = reinterpret_cast<const void*>(x_w_y[1]);
  a.y = reinterpret_cast<void*>(x_w_y[2]);
  std::copy_n(strides[0].begin(), 5, a.x_strides);
  std::copy_n(strides[1].begin(), 5, a.w_strides);
  std::copy_n(strides[2].begin(), 5, a.y_strides);
  a.bias = reinterpret_cast<const void*>(bias);
  a.bias_stride = bias_stride;
  const kernels::Isa chosen = ChooseIsa(isa);
  const py::gil_scoped_release release;
  kernels::Convolution(a, chosen);
}

// False, and nothing done, if there is no fast way.
bool RunPermute(int64_t element_bytes, const std::vector<int64_t>& dims, uintptr_t source,
                const std::vector<int64_t>& source_strides, uintptr_t out,
                const std::vector<int64_t>& out_strides, const std::string& isa) {
  kernels::PermuteArgs args;
  args.element_bytes = element_bytes;
  args.rank = static_cast<int>(dims.size());
  if (args.rank > kernels::kMaxPermuteRank) return false;
  std::copy(dims.begin(), dims.end(), args.dims);
  args.source = reinterpret_cast<const void*>(source);
  std::copy_n(source_strides.begin(), dims.size(), args.source_strides);
  args.out = reinterpret_cast<void*>(out);
  std::copy_n(out_strides.begin(), dims.size(), args.out_strides);
  if (!kernels::CanPermute(args)) return false;
  const kernels::Isa chosen = ChooseIsa(isa);
  const py::gil_scoped_release release;
  kernels::Permute(args, chosen);
  return true;
}

// How often each item of a ParallelFor ran, with `spin` rounds of work in each item and optionally
// a nested loop.
std::vector<int> CountItems(int64_t items, int64_t spin, bool nested) {
  std::vector<std::atomic<int>> counts(static_cast<size_t>(items));
  {
    const py::gil_scoped_release release;
    auto& pool = kernels::ThreadPool::Get();
    pool.ParallelFor(items, [&](int64_t i) {
      for (int64_t s = 0; s < spin; ++s) std::atomic_signal_fence(std::memory_order_seq_cst);
      const auto count = [&](int64_t) { counts[static_cast<size_t>(i)].fetch_add(1); };
      if (nested) {
        pool.ParallelFor(3, count);
      } else {
        count(0);
      }
    });
  }
  return {counts.begin(), counts.end()};
}

}  // namespace

void BindKernels(py::module_& m) {
  py::module_ sub = m.def_submodule("kernels", "The engines of the software NeuronCore.");
  sub.def("isa", [] { return std::string(kernels::Name(kernels::ActiveIsa())); });
  sub.def("available_isas", [] {
    std::vector<std::string> names;
    using kernels::Isa;
    for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
      if (kernels::CpuHas(isa)) names.emplace_back(kernels::Name(isa));
    }
    return names;
  });
  sub.def("num_threads", [] { return kernels::ThreadPool::Get().size(); });
  sub.def("set_num_threads", [](int n) { kernels::ThreadPool::Get().Resize(n); }, py::arg("n"));
  sub.def("count_items", &CountItems, py::arg("items"), py::arg("spin") = 0,
          py::arg("nested") = false);
  sub.def("gemm", &RunGemm, py::arg("dtype"), py::arg("batch_m_n_k"), py::arg("a"),
          py::arg("a_strides"), py::arg("b"), py::arg("b_strides"), py::arg("c"),
          py::arg("c_strides"), py::arg("alpha") = 1.0, py::arg("beta") = 0.0, py::arg("d") = 0,
          py::arg("d_strides") = std::array<int64_t, 3>{}, py::arg("isa") = "");
  sub.def("attention", &RunAttention, py::arg("dtype"), py::arg("sizes"), py::arg("q_k_v_out"),
          py::arg("strides"), py::arg("causal") = false, py::arg("scale") = 1.0,
          py::arg("bias") = 0, py::arg("bias_dtype") = "b8",
          py::arg("bias_strides") = std::array<int64_t, 4>{}, py::arg("lse") = 0,
          py::arg("lse_strides") = std::array<int64_t, 3>{}, py::arg("isa") = "",
          py::arg("dropout") = std::tuple<double, uint64_t, uint64_t>());
  sub.def("convolution", &RunConvolution, py::arg("dtype"), py::arg("sizes"), py::arg("window"),
          py::arg("transposed"), py::arg("x_w_y"), py::arg("strides"), py::arg("bias") = 0,
          py::arg("bias_stride") = 0, py::arg("isa") = "");
  sub.def(
      "measure_peak",
      [](const std::string& dtype, double seconds, const std::string& isa) {
        const kernels::Isa chosen = ChooseIsa(isa);
        const DType parsed = ParseDType(dtype);
        const py::gil_scoped_release release;
        return kernels::MeasurePeak(parsed, seconds, chosen);
      },
      py::arg("dtype"), py::arg("seconds") = 0.1, py::arg("isa") = "");
  sub.def("permute", &RunPermute, py::arg("element_bytes"), py::arg("dims"), py::arg("source"),
          py::arg("source_strides"), py::arg("out"), py::arg("out_strides"), py::arg("isa") = "");
  sub.def("attention_grad", &RunAttentionGrad, py::arg("dtype"), py::arg("sizes"),
          py::arg("q_k_v_out"), py::arg("strides"), py::arg("causal"), py::arg("scale"),
          py::arg("bias"), py::arg("bias_dtype"), py::arg("bias_strides"), py::arg("lse"),
          py::arg("lse_strides"), py::arg("isa"), py::arg("dropout"), py::arg("gradients"),
          py::arg("gradient_strides"));
}

}  // namespace neuron
