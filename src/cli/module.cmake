target_compile_options(ibid_cli PRIVATE ${IBID_COLD})
add_executable(ibid src/cli/main.cc)
target_link_libraries(ibid PRIVATE ibid_cli)
