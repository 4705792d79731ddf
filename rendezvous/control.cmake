# The control half: agent links and the coordinator, which decides who is in the job and what happens next. Only the
# launcher links it, never libddp.
# The order is that in which folders are compiled as one (AS_ONE): etcd, whose HTTP takes long, by itself.
add_library(ddprun_control STATIC
  etcd/base64.cpp
  etcd/client.cpp
  etcd/connection.cpp
  etcd/etcd_journal.cpp
  etcd/http_answer.cpp
  etcd/lease_core.cpp
  etcd/messages.cpp
  etcd/request_course.cpp
  etcd/tls/tls_library.cpp
  etcd/tls/tls_session.cpp
  coordinator/core/accept_record.cpp
  coordinator/core/admission.cpp
  coordinator/core/coordinator_core.cpp
  coordinator/core/gathering.cpp
  coordinator/core/job_record.cpp
  coordinator/core/links.cpp
  coordinator/core/recovery.cpp
  coordinator/core/roster.cpp
  coordinator/core/round_end.cpp
  coordinator/core/rounds.cpp
  coordinator/core/seats.cpp
  coordinator/coordinator.cpp
  coordinator/looks.cpp
  coordinator/record_gate.cpp
  coordinator/store_channel.cpp
  coordinator/stores.cpp
  net/boot_timer.cpp
  net/message_channel.cpp
  journal/file_journal.cpp
  journal/journal_format.cpp
  link/accept.cpp
  link/acceptor.cpp
  link/client.cpp
  link/codec.cpp
  link/failures.cpp
  link/messages.cpp
  link/printable.cpp
  membership/cipher.cpp
  membership/handshake.cpp
  membership/munge.cpp
  membership/secret.cpp)
add_library(ddprun::control ALIAS ddprun_control)
ddprun_tests_replace(
  coordinator/core/admission.cpp coordinator/core/coordinator_core.cpp coordinator/core/gathering.cpp
  coordinator/core/recovery.cpp coordinator/core/roster.cpp coordinator/core/round_end.cpp
  coordinator/core/rounds.cpp coordinator/core/seats.cpp coordinator/record_gate.cpp link/messages.cpp)  # scripts/stress/mutants
ddprun_target(ddprun_control AS_ONE 10)
target_link_libraries(ddprun_control
  PUBLIC ddprun::store PRIVATE nlohmann_json::nlohmann_json utf8cpp xxhash::header sodium::static ${CMAKE_DL_LIBS})
