target_link_libraries(ibid_format ${scope} OpenSSL::SSL)
# Beast's templates take minutes under the undefined-behaviour checks: this file is checked for addresses alone.
if(IBID_SANITIZE)
  set_source_files_properties(src/format/http_client.cc PROPERTIES COMPILE_OPTIONS -fno-sanitize=undefined)
endif()
