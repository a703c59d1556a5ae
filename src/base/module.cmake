target_link_libraries(ibid_base ${scope} Threads::Threads ${XXHASH} OpenSSL::Crypto)
set_source_files_properties(src/base/log.cc PROPERTIES COMPILE_OPTIONS "${IBID_COLD}"
  COMPILE_DEFINITIONS "SPDLOG_HEADER_ONLY;SPDLOG_FMT_EXTERNAL")
target_link_libraries(ibid_base ${scope} ${BOOST_JSON})
