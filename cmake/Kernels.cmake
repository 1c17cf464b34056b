# fem_add_kernels(target source...): compiles the sources once per instruction set into namespaces of their own and
# links the objects into target. Kernels are optimised in every build type, debug included.
set(FEM_ISA_FLAGS_generic -DFEM_ISA=generic)
set(FEM_ISA_FLAGS_avx2 -DFEM_ISA=avx2 -mavx2 -mfma -mf16c)
set(FEM_ISA_FLAGS_avx512 -DFEM_ISA=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
# Tests only: the AVX-512 kernels from AVX2 instructions, to run them on any AVX2 machine.
# Vectors wider than the registers stay inside a file, so their calling convention does not matter.
set(FEM_ISA_FLAGS_emulated -DFEM_ISA=avx512 -DFEM_LANES=16 -mavx2 -mfma -mf16c -Wno-psabi)

function(fem_kernel_objects objects isa)
  add_library(${objects} OBJECT ${ARGN})
  target_compile_options(${objects} PRIVATE ${FEM_ISA_FLAGS_${isa}} -O3 -fno-math-errno -fvisibility=hidden)
  target_include_directories(${objects} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
endfunction()

function(fem_add_kernels target)
  foreach(isa generic avx2 avx512)
    fem_kernel_objects(${target}_${isa} ${isa} ${ARGN})
    target_link_libraries(${target} PRIVATE ${target}_${isa})
  endforeach()
endfunction()

# emulated: a twin of target, with all of its objects but the AVX-512 kernels.
function(fem_add_emulated_kernels emulated target)
  fem_kernel_objects(${emulated}_avx512 emulated ${ARGN})
  set_target_properties(${emulated} ${emulated}_avx512 PROPERTIES EXCLUDE_FROM_ALL ON)
  target_link_libraries(${emulated} PRIVATE ${target}_generic ${target}_avx2 ${emulated}_avx512)
endfunction()
