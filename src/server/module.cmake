target_link_libraries(ibid_server ${scope} OpenSSL::Crypto ${BOOST_JSON})
