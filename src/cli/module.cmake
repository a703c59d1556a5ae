add_executable(ibid src/cli/main.cc)
target_link_libraries(ibid PRIVATE ibid_cli)
