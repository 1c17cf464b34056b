find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers defeat ccache unless it may ignore their time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  add_compile_options(-fpch-preprocess)
endif()
find_program(MOLD mold)
if(MOLD)
  # mold 1.10 lets the segment that becomes read-only begin on a page that is not mapped, if the code ends just before a
  # page does and there are thread-local bytes (torch has one): such a program cannot be loaded. So it has no such segment.
  add_link_options(-fuse-ld=mold -Wl,-z,norelro)
endif()
add_compile_options(-Wall -Wextra -Werror=return-type -Wno-unused-parameter -Wno-missing-field-initializers)
# All but the kernels is compiled alike, programs too: one precompiled header serves whatever has its flags. What is hot
# is in the kernels and in torch, and -O1 compiles a quarter faster than -O3 (docs/decisions/0019-building.md).
add_compile_options(-fPIC $<$<NOT:$<CONFIG:Debug>>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(--param=ggc-min-heapsize=1048576)  # kB before the compiler collects garbage, which torch's headers make it do
endif()
set(FEM_SANITIZERS -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
if(FEM_SANITIZE)
  # Instrumented and not optimised, FEM_CHECK(false, ...) looks as if it came back.
  add_compile_options(${FEM_SANITIZERS} -Wno-return-type)
  add_link_options(${FEM_SANITIZERS})
endif()

# fem makes the one precompiled header; every other target of C++ above it takes that.
function(fem_reuse_header target)
  target_precompile_headers(${target} REUSE_FROM fem)
endfunction()

# Opening torch's headers, precompiled, takes four seconds a file: what is in one folder is compiled together, and of
# ops/ what is in one folder below it, or in one of some small ones. Names in the anonymous namespaces of such files must
# differ.
function(fem_compile_folders_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "^ops/(free_energy_read|layer_norm|rms_norm|rotary|short_convolution|swiglu)/")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP small_ops)
    elseif(source MATCHES "^(ops/[a-z_]+|[a-z_]+)/")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
    endif()
  endforeach()
endfunction()
