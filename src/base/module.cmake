target_link_libraries(ibid_base ${scope} Threads::Threads ${XXHASH} OpenSSL::Crypto)
target_compile_definitions(ibid_base ${scope} SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
target_link_libraries(ibid_base ${scope} ${BOOST_JSON})
