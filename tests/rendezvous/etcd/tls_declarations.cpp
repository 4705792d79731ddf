// SPDX-License-Identifier: BSD-3-Clause
// Compares our declarations of OpenSSL with the real headers; the test is that this file compiles.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "rendezvous/etcd/tls/tls_library.hpp"
#include "tests/support/called_alike.hpp"

using namespace ddp::rendezvous;

#define SAME_NUMBER(ours, real) static_assert(ours == real, #real)

CALLED_ALIKE(TlsApi, client_method, TLS_client_method);
CALLED_ALIKE(TlsApi, new_configuration, SSL_CTX_new);
CALLED_ALIKE(TlsApi, free_configuration, SSL_CTX_free);
CALLED_ALIKE(TlsApi, control_configuration, SSL_CTX_ctrl);
CALLED_ALIKE(TlsApi, set_verify, SSL_CTX_set_verify);
CALLED_ALIKE(TlsApi, load_authorities, SSL_CTX_load_verify_locations);
CALLED_ALIKE(TlsApi, use_systems_authorities, SSL_CTX_set_default_verify_paths);
CALLED_ALIKE(TlsApi, use_certificate_chain, SSL_CTX_use_certificate_chain_file);
CALLED_ALIKE(TlsApi, use_private_key, SSL_CTX_use_PrivateKey_file);
CALLED_ALIKE(TlsApi, check_private_key, SSL_CTX_check_private_key);
CALLED_ALIKE(TlsApi, set_password_callback, SSL_CTX_set_default_passwd_cb);
CALLED_ALIKE(TlsApi, new_connection, SSL_new);
CALLED_ALIKE(TlsApi, free_connection, SSL_free);
CALLED_ALIKE(TlsApi, control_connection, SSL_ctrl);
CALLED_ALIKE(TlsApi, set_bytes, SSL_set_bio);
CALLED_ALIKE(TlsApi, be_client, SSL_set_connect_state);
CALLED_ALIKE(TlsApi, set_expected_name, SSL_set1_host);
CALLED_ALIKE(TlsApi, set_name_flags, SSL_set_hostflags);
CALLED_ALIKE(TlsApi, parameters, SSL_get0_param);
CALLED_ALIKE(TlsApi, set_expected_address, X509_VERIFY_PARAM_set1_ip_asc);
CALLED_ALIKE(TlsApi, do_handshake, SSL_do_handshake);
CALLED_ALIKE(TlsApi, read, SSL_read);
CALLED_ALIKE(TlsApi, write, SSL_write);
CALLED_ALIKE(TlsApi, error_of, SSL_get_error);
CALLED_ALIKE(TlsApi, verify_result, SSL_get_verify_result);
CALLED_ALIKE(TlsApi, memory_bytes, BIO_s_mem);
CALLED_ALIKE(TlsApi, new_bytes, BIO_new);
CALLED_ALIKE(TlsApi, read_bytes, BIO_read);
CALLED_ALIKE(TlsApi, write_bytes, BIO_write);
CALLED_ALIKE(TlsApi, verify_text, X509_verify_cert_error_string);
CALLED_ALIKE(TlsApi, next_error, ERR_get_error);
CALLED_ALIKE(TlsApi, error_text, ERR_error_string_n);
CALLED_ALIKE(TlsApi, clear_errors, ERR_clear_error);

SAME_NUMBER(kTlsVerifyPeer, SSL_VERIFY_PEER);
SAME_NUMBER(kTlsPemFile, SSL_FILETYPE_PEM);
SAME_NUMBER(kTlsSetLeastVersion, SSL_CTRL_SET_MIN_PROTO_VERSION);
SAME_NUMBER(kTlsVersion12, TLS1_2_VERSION);
SAME_NUMBER(kTlsSetServerName, SSL_CTRL_SET_TLSEXT_HOSTNAME);
SAME_NUMBER(kTlsNoPartialWildcards, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
SAME_NUMBER(kTlsWantsRead, SSL_ERROR_WANT_READ);
SAME_NUMBER(kTlsWantsWrite, SSL_ERROR_WANT_WRITE);
SAME_NUMBER(kTlsClosedInOrder, SSL_ERROR_ZERO_RETURN);
SAME_NUMBER(kTlsVerified, X509_V_OK);
