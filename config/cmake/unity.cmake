# Unity builds (the release preset) put several files of a target into one translation unit, which halves the time of a
# first build. Two files of a unit must not define the same name in their anonymous namespaces; those that do stay apart:
if(CMAKE_UNITY_BUILD)
  # `Fail` in llama_config.cc and llama_weights.cc; `Kind` in chat_template.cc and jinja_scan.cc.
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/engine/model/llama_weights.cc ${PROJECT_SOURCE_DIR}/engine/text/jinja_scan.cc
    TARGET_DIRECTORY kvist_engine PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # `kGhostsMin` in s3_fifo_policy.cc and another policy.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/cachestore/retention/s3_fifo_policy.cc
    TARGET_DIRECTORY kvist_cachestore PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
