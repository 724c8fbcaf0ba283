// Products of bf16 on VDPBF16PS, which multiplies pairs: panels hold two elements of k side by
// side. It takes denormals as zero. kernels.cmake sets the compiler flags of this file.
#include <immintrin.h>

#include "kernels/gemm_kernels.h"

namespace neuron::kernels::avx512_bf16 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx512.inc"
#include "kernels/gemm_micro.inc"
#include "kernels/gemm_pack.inc"
#include "kernels/gemm_skinny.inc"
// clang-format on

inline void StoreTile(float* to, VF x) { Store(to, x); }
// Products are never denormal here, so VCVTNEPS2BF16, which takes denormals as zero, is exact.
inline void StoreTile(BF16* to, VF x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

// Micro, for pairs. Out: float for sums, BF16 for the result itself.
template <typename Out, int kRows, int kVectors, bool kPacked>
void MicroPairs(int64_t pairs, const void* a, int64_t a_row_stride, const void* b, int64_t b_step,
                const void* in, int64_t in_stride, void* out, int64_t out_stride) {
  VF sums[kRows][kVectors];
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sums[i][j] = Zero();
  }
  const char* a_at = static_cast<const char*>(a);
  const char* b_at = static_cast<const char*>(b);
  for (int64_t k = 0; k < pairs; ++k) {
    __m512bh bv[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      bv[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b_at + j * 64));
    }
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) {
      int pair;
      __builtin_memcpy(&pair, kPacked ? a_at + i * 4 : a_at + i * a_row_stride, 4);
      const auto av = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], av, bv[j]);
    }
    a_at += kPacked ? kRows * 4 : 4;
    b_at += b_step;
  }
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      if (in != nullptr)
        sums[i][j] += Load(static_cast<const float*>(in) + i * in_stride + j * kLanes);
      StoreTile(static_cast<Out*>(out) + i * out_stride + j * kLanes, sums[i][j]);
    }
  }
}

template <typename Out, bool kPacked, int kRows = kTileRows>
void FillPairs(MicroKernel (&table)[kMaxTileVectors][kMaxTileRows]) {
  table[0][kRows - 1] = MicroPairs<Out, kRows, 1, kPacked>;
  table[1][kRows - 1] = MicroPairs<Out, kRows, 2, kPacked>;
  if constexpr (kRows > 1) FillPairs<Out, kPacked, kRows - 1>(table);
}

// The skinny kernels' arithmetic, in pairs.
struct PairMath {
  using A = BF16;
  using B = BF16;
  using Vector = __m512bh;
  static constexpr int kDotStep = 2 * kLanes;
  static constexpr int kRowStep = 2;

  static __m512bh LoadAlongK(const BF16* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  static __m512bh LoadAlongKPart(const BF16* p, int n) {
    return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16((1u << n) - 1, p));
  }
  static __m512bh LoadAlongN(const BF16* p, int64_t stride, int n) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(Mask16(n), p));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(Mask16(n), p + stride));
    return reinterpret_cast<__m512bh>(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
  static __m512bh Broadcast(const BF16* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static VF MulAdd(__m512bh a, __m512bh b, VF c) { return _mm512_dpbf16_ps(c, a, b); }
};

// Contiguous along k: pairs lie side by side already, so the panel is that of 32-bit elements.
void PackPairsAlongK(const PackArgs& args) {
  const BF16* source = static_cast<const BF16*>(args.source);
  PackArgs pairs = args;
  pairs.k = args.k / 2;
  const int64_t last_spill =
      args.width >= kLanes ? pairs.k : pairs.k - (kLanes + args.width - 1) / args.width;
  uint32_t* panel = static_cast<uint32_t*>(args.panel);
  for (int64_t k = 0; k < pairs.k; k += kLanes) {
    const int n = static_cast<int>(pairs.k - k < kLanes ? pairs.k - k : kLanes);
    for (int i = 0; i < args.width; i += kLanes) {
      VF r[kLanes];
#pragma GCC unroll 16
      for (int row = 0; row < kLanes; ++row) {
        r[row] = i + row < args.count ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(
                                            Mask16(n), source + (i + row) * args.stride + 2 * k))
                                      : Zero();
      }
      Transpose(r);
      uint32_t* to = panel + k * args.width + i;
      const int room = args.width < kLanes ? args.width : kLanes;
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        if (j >= n) break;
        _mm512_mask_storeu_ps(to + j * args.width,
                              k + j <= last_spill ? Mask16(kLanes) : Mask16(room), r[j]);
      }
    }
  }
  if (args.k % 2 == 0) return;
  for (int i = 0; i < args.width; ++i) {
    panel[pairs.k * args.width + i] =
        i < args.count ? source[i * args.stride + args.k - 1].bits : 0;
  }
}

// Contiguous along the panel: two rows are interleaved.
void PackPairsAlongPanel(const PackArgs& args) {
  const BF16* from = static_cast<const BF16*>(args.source);
  uint32_t* to = static_cast<uint32_t*>(args.panel);
  for (int64_t k = 0; k < args.k; k += 2, from += 2 * args.k_stride, to += args.width) {
    __builtin_prefetch(from + kPrefetchRows * args.k_stride);
    __builtin_prefetch(from + (kPrefetchRows + 1) * args.k_stride);
    for (int i = 0; i < args.width; i += kLanes) {
      const int n = args.count - i < 0 ? 0 : args.count - i < kLanes ? args.count - i : kLanes;
      const __mmask16 odd = k + 1 < args.k ? Mask16(n) : static_cast<__mmask16>(0);
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(Mask16(n), from + i));
      const __m512i high =
          _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd, from + args.k_stride + i));
      const int room = args.width - i < kLanes ? args.width - i : kLanes;
      _mm512_mask_storeu_epi32(to + i, Mask16(room),
                               _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

void PackPairs(const PackArgs& args) {
  if (args.k_stride == 1) return PackPairsAlongK(args);
  if (args.stride == 1) return PackPairsAlongPanel(args);
  const BF16* source = static_cast<const BF16*>(args.source);
  uint32_t* to = static_cast<uint32_t*>(args.panel);
  for (int64_t k = 0; k < args.k; k += 2, to += args.width) {
    for (int i = 0; i < args.width; ++i) {
      const BF16* from = source + i * args.stride + k * args.k_stride;
      const uint32_t low = i < args.count ? from[0].bits : 0u;
      const uint32_t high = i < args.count && k + 1 < args.k ? from[args.k_stride].bits : 0u;
      to[i] = low | high << 16;
    }
  }
}

}  // namespace

const GemmKernels* FindGemmKernels(DType dtype) {
  if (dtype != DType::kBF16) return nullptr;
  static const GemmKernels kernels = [] {
    GemmKernels k = *FloatKernels<BF16>();
    k.k_unit = 2;
    k.packed_bytes = 2;
    k.pack = PackPairs;
    k.dots = Dots<PairMath>;
    k.rows = Rows<PairMath>;
    k.skinny_takes_f32 = false;
    FillPairs<float, true>(k.packed);
    FillPairs<BF16, true>(k.final);
    FillPairs<float, false>(k.unpacked);
    return k;
  }();
  return &kernels;
}

}  // namespace neuron::kernels::avx512_bf16
