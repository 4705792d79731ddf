// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/tls/tls_library.hpp"

#include "rendezvous/base/shared_library.hpp"

namespace ddp::rendezvous {

namespace {

constexpr char kAdvice[] =
    "install OpenSSL 3 or 1.1, set DDPRUN_SSL_LIBRARY to the file of its libssl, or use protocol=http";

// libcrypto's functions are found through libssl, which needs it.
TlsApi tls_table(const SharedLibrary& library) {
  TlsApi api = {};
  library.find("TLS_client_method", api.client_method);
  library.find("SSL_CTX_new", api.new_configuration);
  library.find("SSL_CTX_free", api.free_configuration);
  library.find("SSL_CTX_ctrl", api.control_configuration);
  library.find("SSL_CTX_set_verify", api.set_verify);
  library.find("SSL_CTX_load_verify_locations", api.load_authorities);
  library.find("SSL_CTX_set_default_verify_paths", api.use_systems_authorities);
  library.find("SSL_CTX_use_certificate_chain_file", api.use_certificate_chain);
  library.find("SSL_CTX_use_PrivateKey_file", api.use_private_key);
  library.find("SSL_CTX_check_private_key", api.check_private_key);
  library.find("SSL_CTX_set_default_passwd_cb", api.set_password_callback);
  library.find("SSL_new", api.new_connection);
  library.find("SSL_free", api.free_connection);
  library.find("SSL_ctrl", api.control_connection);
  library.find("SSL_set_bio", api.set_bytes);
  library.find("SSL_set_connect_state", api.be_client);
  library.find("SSL_set1_host", api.set_expected_name);
  library.find("SSL_set_hostflags", api.set_name_flags);
  library.find("SSL_get0_param", api.parameters);
  library.find("X509_VERIFY_PARAM_set1_ip_asc", api.set_expected_address);
  library.find("SSL_do_handshake", api.do_handshake);
  library.find("SSL_read", api.read);
  library.find("SSL_write", api.write);
  library.find("SSL_get_error", api.error_of);
  library.find("SSL_get_verify_result", api.verify_result);
  library.find("BIO_s_mem", api.memory_bytes);
  library.find("BIO_new", api.new_bytes);
  library.find("BIO_read", api.read_bytes);
  library.find("BIO_write", api.write_bytes);
  library.find("X509_verify_cert_error_string", api.verify_text);
  library.find("ERR_get_error", api.next_error);
  library.find("ERR_error_string_n", api.error_text);
  library.find("ERR_clear_error", api.clear_errors);
  return api;
}

}  // namespace

TlsApi open_tls(const char* path) { return tls_table(SharedLibrary("OpenSSL", {path}, kAdvice)); }

const TlsApi& tls_api() {
  static const TlsApi api = tls_table(
      SharedLibrary("OpenSSL", library_names("DDPRUN_SSL_LIBRARY", {"libssl.so.3", "libssl.so.1.1"}), kAdvice));
  return api;
}

}  // namespace ddp::rendezvous
