target_link_libraries(ibid_text ${scope} ${BOOST_JSON} ${PCRE2_8})
