# control: who is in the job and what happens next. Used by the launcher only; libddp never links it.
add_library(ddprun_control STATIC
  coordinator.cpp
  coordinator_core.cpp
  link_acceptor.cpp
  link_client.cpp
  link_codec.cpp
  link_failures.cpp
  link_handshake.cpp
  link_messages.cpp
  link_secret.cpp)
add_library(ddprun::control ALIAS ddprun_control)
ddprun_target(ddprun_control)
target_link_libraries(ddprun_control PUBLIC ddprun::store PRIVATE nlohmann_json::nlohmann_json sodium::static)
