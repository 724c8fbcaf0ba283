# The installed torch of the interpreter that builds: headers and libraries. Its own TorchConfig would look for
# what a CPU build does not need.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent)"
  OUTPUT_VARIABLE TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing)
if(torch_missing)
  message(FATAL_ERROR "torch is not installed for ${Python_EXECUTABLE}: pip install torch==2.13.0")
endif()
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import pybind11; print(pybind11.get_include())"
  OUTPUT_VARIABLE pybind11_INCLUDE_DIRS OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(TORCH_INCLUDE_DIRS ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
set(TORCH_DEFINITIONS TORCH_EXTENSION_NAME=_C TORCH_API_INCLUDE_EXTENSION_H)
set(TORCH_LIBS)
foreach(library c10 torch_cpu torch torch_python)
  list(APPEND TORCH_LIBS ${TORCH_ROOT}/lib/lib${library}.so)
endforeach()
# torch is loaded before this extension, so its libraries are found by name: no run path is needed.
set(CMAKE_SKIP_RPATH ON)
