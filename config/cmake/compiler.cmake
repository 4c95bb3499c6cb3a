# Warnings are errors; sanitizers, unity builds and ccache are chosen by the preset.
add_library(kvist_flags INTERFACE)
target_include_directories(kvist_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(kvist_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wundef;-Werror>
  # nvcc's generated host code does not pass -Wpedantic, -Wshadow or -Wundef.
  # 2810: it takes an assignment from a [[nodiscard]] call for a discarded one.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;-diag-suppress=2810>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kvist_flags INTERFACE -Wthread-safety)
endif()
if(KVIST_SANITIZE)
  add_compile_options(-fsanitize=${KVIST_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${KVIST_SANITIZE})
  if(KVIST_SANITIZE MATCHES thread)
    # TSan does not see fences. Asio's are redundant beside the locks of its queues.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
    add_compile_options(-Wno-error=tsan)
  endif()
endif()
find_program(KVIST_CCACHE ccache)
if(KVIST_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KVIST_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${KVIST_CCACHE})
endif()
