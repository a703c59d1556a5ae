target_link_libraries(ibid_format ${scope} OpenSSL::SSL)
