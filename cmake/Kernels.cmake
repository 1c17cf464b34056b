# fem_add_kernels(target source...): compiles the sources once per instruction set into namespaces of their own and
# links the objects into target. Kernels are optimised in every build type, debug included.
set(FEM_ISA_FLAGS_generic -DFEM_ISA=generic)
set(FEM_ISA_FLAGS_avx2 -DFEM_ISA=avx2 -mavx2 -mfma -mf16c)
set(FEM_ISA_FLAGS_avx512 -DFEM_ISA=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)

if(FEM_EMULATE_AVX512)
  # Vectors wider than the registers stay inside a file, so their calling convention does not matter.
  set(FEM_ISA_FLAGS_avx512 -DFEM_ISA=avx512 -DFEM_LANES=16 -mavx2 -mfma -mf16c -Wno-psabi)
endif()

function(fem_add_kernels target)
  foreach(isa generic avx2 avx512)
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${ARGN})
    target_compile_options(${objects} PRIVATE ${FEM_ISA_FLAGS_${isa}} -O3 -fno-math-errno -fvisibility=hidden)
    target_include_directories(${objects} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE ${objects})
  endforeach()
endfunction()
