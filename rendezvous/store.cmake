# The store half: c10d codec, store core and server, the stores that clients use. It is linked into ddprun and into
# libddp, so it does not use the log.
add_library(ddprun_store STATIC
  agent_client.cpp
  base/descriptor_message.cpp
  base/new_file.cpp
  base/random_id.cpp
  base/shallow_json.cpp
  base/shared_library.cpp
  base/text.cpp
  kept/kept_core.cpp
  machine/control_groups.cpp
  machine/cpus.cpp
  machine/memory_left.cpp
  machine/network_space.cpp
  machine/process_folder.cpp
  net/asio.cpp
  net/listen.cpp
  net/addresses/name_lookup.cpp
  net/addresses/numeric_address.cpp
  net/addresses/own_address.cpp
  net/connection_owner.cpp
  net/peer_user.cpp
  net/silence.cpp
  job_ports.cpp
  process_manager/exchange.cpp
  process_manager/pmi_client.cpp
  process_manager/pmix_client.cpp
  slurm_step.cpp
  store/c10d_protocol.cpp
  store/file_store.cpp
  store/hash_store.cpp
  store/prefix_store.cpp
  store/server.cpp
  store/store.cpp
  store/store_core.cpp
  store/tcp_store.cpp
  wire/frame.cpp
  wire/json_text.cpp)
add_library(ddprun::store ALIAS ddprun_store)
ddprun_tests_replace(machine/memory_left.cpp)  # flag_protocol_tests
ddprun_target(ddprun_store AS_ONE 30)
# A portable build, which is -Os elsewhere.
target_compile_options(ddprun_store PRIVATE $<$<CONFIG:MinSizeRel>:-O2>)
target_compile_definitions(ddprun_store PUBLIC BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(ddprun_store
  PUBLIC Boost::headers Threads::Threads ${CMAKE_DL_LIBS} PRIVATE nlohmann_json::nlohmann_json)
