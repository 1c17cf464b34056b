# Finds the torch wheel's CMake package without importing torch: pip's, that of the active environment, else .venv's.
if(SKBUILD)
  set(FEM_PYTHON ${Python_EXECUTABLE})
elseif(DEFINED ENV{VIRTUAL_ENV})
  set(FEM_PYTHON $ENV{VIRTUAL_ENV}/bin/python)
else()
  set(FEM_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
if(NOT Torch_DIR)
  execute_process(
    COMMAND ${FEM_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "torch was not found by ${FEM_PYTHON}. Run scripts/setup, or pass -DTorch_DIR=<site-packages>/torch/share/cmake/Torch")
  endif()
  set(Torch_DIR ${torch_root}/share/cmake/Torch CACHE PATH "torch's CMake package")
endif()
find_package(Torch 2.13 REQUIRED)
get_filename_component(FEM_TORCH_LIB ${Torch_DIR}/../../../lib ABSOLUTE)

# at::parallel_for is a header: without OpenMP it silently runs on one thread. The runtime is torch's own libgomp.so.1.
find_package(OpenMP REQUIRED)
