// Transposition for one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/transpose_kernels.h"

namespace neuron::kernels::avx2 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx2.inc"
// clang-format on

VF LoadBits(const uint32_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
VF LoadBits(const uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
VF LoadBits(const uint8_t* p) {
  return _mm256_castsi256_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// The low halves of the lanes, as 16 bits each.
__m128i Halves(VF x) {
  const __m256i bits = _mm256_castps_si256(x);
  return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}
void StoreBits(uint32_t* p, VF x) { _mm256_storeu_ps(reinterpret_cast<float*>(p), x); }
void StoreBits(uint16_t* p, VF x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), Halves(x)); }
void StoreBits(uint8_t* p, VF x) {
  const __m128i halves = Halves(x);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
}

#include "kernels/transpose_tiles.inc"

}  // namespace

const TransposeKernels& GetTransposeKernels() { return kTransposeKernels; }

}  // namespace neuron::kernels::avx2
