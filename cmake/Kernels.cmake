# fem_add_kernels(target source...): compiles the sources once per instruction set into namespaces of their own and
# links the objects into target. Kernels are optimised in every build type, debug included; under sanitizers, whose
# checks -O3 copies with the code it copies, as little as it takes to keep vectors in registers.
set(FEM_ISAS "generic;avx2;avx512" CACHE STRING
  "Instruction sets of the kernels, of which the library chooses one when it runs; native: the best of this machine")
set(FEM_ISA_FLAGS_generic -DFEM_ISA=generic)
set(FEM_ISA_FLAGS_avx2 -DFEM_ISA=avx2 -mavx2 -mfma -mf16c)
set(FEM_ISA_FLAGS_avx512 -DFEM_ISA=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
# Tests only: the AVX-512 kernels from AVX2 instructions, to run them on any AVX2 machine.
# Vectors wider than the registers stay inside a file, so their calling convention does not matter.
set(FEM_ISA_FLAGS_emulated -DFEM_ISA=avx512 -DFEM_LANES=16 -mavx2 -mfma -mf16c -Wno-psabi)
set(FEM_TWIN_KEEPS_emulated generic avx2)
# Tests only: the generic kernels under sanitizers. They see no torch, so that this compiles in a minute, and nearly all
# arithmetic on pointers is theirs; all else is as it was built.
set(FEM_ISA_FLAGS_sanitized -DFEM_ISA=generic -g1 ${FEM_SANITIZERS})
set(FEM_TWIN_KEEPS_sanitized)

# What torch asks for before it calls a processor AVX512 or AVX2.
function(fem_native_isa isa)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
    OUTPUT_VARIABLE macros RESULT_VARIABLE failed ERROR_VARIABLE reason)
  if(failed)
    message(FATAL_ERROR "FEM_ISAS=native: the compiler cannot tell what this machine has; name the sets instead:\n${reason}")
  endif()
  set(${isa} generic PARENT_SCOPE)
  if(macros MATCHES "__AVX2__ 1" AND macros MATCHES "__FMA__ 1" AND macros MATCHES "__F16C__ 1")
    set(${isa} avx2 PARENT_SCOPE)
    if(macros MATCHES "__AVX512F__ 1" AND macros MATCHES "__AVX512BW__ 1" AND macros MATCHES "__AVX512VL__ 1" AND
       macros MATCHES "__AVX512DQ__ 1")
      set(${isa} avx512 PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(FEM_BUILT_ISAS ${FEM_ISAS})
if(native IN_LIST FEM_ISAS)
  fem_native_isa(native_isa)
  list(REMOVE_ITEM FEM_BUILT_ISAS native)
  list(APPEND FEM_BUILT_ISAS ${native_isa})
  list(REMOVE_DUPLICATES FEM_BUILT_ISAS)
endif()
foreach(isa IN LISTS FEM_BUILT_ISAS)
  if(NOT isa MATCHES "^(generic|avx2|avx512)$")
    message(FATAL_ERROR "FEM_ISAS: expected some of native;generic;avx2;avx512, got ${FEM_ISAS}")
  endif()
endforeach()
message(STATUS "Kernels for ${FEM_BUILT_ISAS}")

function(fem_kernel_objects objects isa)
  add_library(${objects} OBJECT ${ARGN})
  if(FEM_SANITIZE OR isa STREQUAL sanitized)
    set(level 1)
  else()
    set(level 3)
  endif()
  target_compile_options(${objects} PRIVATE ${FEM_ISA_FLAGS_${isa}} -O${level} -fno-math-errno -fvisibility=hidden)
  target_include_directories(${objects} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
endfunction()

# What is declared weak is not fetched from an archive: a static library hands its kernels on to whoever links it.
function(fem_link_kernels target owner)
  list(TRANSFORM FEM_BUILT_ISAS PREPEND ${owner}_ OUTPUT_VARIABLE objects)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    list(TRANSFORM objects REPLACE ".+" "$<TARGET_OBJECTS:\\0>")
    target_link_libraries(${target} INTERFACE ${objects})
  else()
    target_link_libraries(${target} PRIVATE ${objects})
  endif()
endfunction()

function(fem_add_kernels target)
  foreach(isa IN LISTS FEM_BUILT_ISAS)
    fem_kernel_objects(${target}_${isa} ${isa} ${ARGN})
  endforeach()
  fem_link_kernels(${target} ${target})
endfunction()

# fem_add_twin_kernels(target flavour source...): what target_flavour, which has the other objects of target, has for
# kernels: those of the flavour, and of target's own those that the flavour keeps.
function(fem_add_twin_kernels target flavour)
  set(twin ${target}_${flavour})
  fem_kernel_objects(${twin}_kernels ${flavour} ${ARGN})
  set_target_properties(${twin} ${twin}_kernels PROPERTIES EXCLUDE_FROM_ALL ON)
  foreach(isa IN LISTS FEM_TWIN_KEEPS_${flavour})
    if(isa IN_LIST FEM_BUILT_ISAS)
      target_link_libraries(${twin} PRIVATE ${target}_${isa})
    endif()
  endforeach()
  target_link_libraries(${twin} PRIVATE ${twin}_kernels)
  if(flavour STREQUAL sanitized)
    target_link_options(${twin} PRIVATE ${FEM_SANITIZERS})
  endif()
endfunction()
