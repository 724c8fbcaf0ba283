# One file per engine and instruction set, chosen at run time (kernels/cpu.h). -O3 and contraction to FMA are
# for these only. uninitialized: g++ 12 reports its own AVX-512 headers.
set(neuron_portable_flags -O3 -ffp-contract=fast -Wno-uninitialized)
set(neuron_avx2_flags ${neuron_portable_flags} -mavx2 -mfma -mf16c)
set(neuron_avx512_flags ${neuron_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
    -mprefer-vector-width=512)
set(neuron_avx512_bf16_flags ${neuron_avx512_flags} -mavx512bf16)
foreach(isa portable avx2 avx512 avx512_bf16)
  file(GLOB isa_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/gemm_${isa}.cc
       ${CMAKE_CURRENT_LIST_DIR}/attention_${isa}.cc
       ${CMAKE_CURRENT_LIST_DIR}/transpose_${isa}.cc ${CMAKE_CURRENT_LIST_DIR}/conv_${isa}.cc
       ${CMAKE_CURRENT_LIST_DIR}/peak_${isa}.cc)
  set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${neuron_${isa}_flags}")
endforeach()
# Machines without these instruction sets have no use for their files.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  get_target_property(neuron_base_sources neuron_base SOURCES)
  list(FILTER neuron_base_sources EXCLUDE REGEX "csrc/kernels/.*_avx")
  set_target_properties(neuron_base PROPERTIES SOURCES "${neuron_base_sources}")
endif()
