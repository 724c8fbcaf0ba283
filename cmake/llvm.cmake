# LLVM from PyPI's mlc-llvm-static: static libraries, headers and CMake files.
foreach(what cmake-dir prefix)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -m mlc_llvm_static.config --${what}
    OUTPUT_VARIABLE value OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE missing)
  if(missing)
    message(FATAL_ERROR "LLVM is not installed for ${Python_EXECUTABLE}: pip install mlc-llvm-static")
  endif()
  string(REPLACE "-" "_" name ${what})
  set(llvm_${name} ${value})
endforeach()
list(APPEND CMAKE_PREFIX_PATH ${llvm_prefix})
set(ZLIB_USE_STATIC_LIBS ON)
find_package(LLVM REQUIRED CONFIG PATHS ${llvm_cmake_dir} NO_DEFAULT_PATH)
llvm_map_components_to_libnames(neuron_llvm_libraries core support passes target x86codegen x86desc x86info analysis
                                codegen scalaropts instcombine object mc transformutils)
