// Transposition for one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/transpose_kernels.h"

namespace neuron::kernels::avx512 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx512.inc"
// clang-format on

VF LoadBits(const uint32_t* p) { return _mm512_loadu_ps(p); }
VF LoadBits(const uint16_t* p) {
  return _mm512_castsi512_ps(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
VF LoadBits(const uint8_t* p) {
  return _mm512_castsi512_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
void StoreBits(uint32_t* p, VF x) { _mm512_storeu_ps(p, x); }
void StoreBits(uint16_t* p, VF x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_castps_si512(x)));
}
void StoreBits(uint8_t* p, VF x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_castps_si512(x)));
}

#include "kernels/transpose_tiles.inc"

}  // namespace

const TransposeKernels& GetTransposeKernels() { return kTransposeKernels; }

}  // namespace neuron::kernels::avx512
