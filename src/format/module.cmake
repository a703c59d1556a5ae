ibid_apart(src/format/gguf_writer.cc src/format/importance.cc src/format/quantised_matrix.cc src/format/type_rules.cc)
target_link_libraries(ibid_format ${scope} OpenSSL::SSL)
# Beast's templates take minutes under the undefined-behaviour checks: this file is checked for addresses alone.
set(http_client_options ${IBID_COLD})
if(IBID_SANITIZE)
  list(APPEND http_client_options -fno-sanitize=undefined)
endif()
set_source_files_properties(src/format/http_client.cc PROPERTIES COMPILE_OPTIONS "${http_client_options}")
