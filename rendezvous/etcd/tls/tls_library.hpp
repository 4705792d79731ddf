// SPDX-License-Identifier: BSD-3-Clause
// OpenSSL as a table of function pointers, filled from libssl.so.3 or libssl.so.1.1, whichever is found at run time: so
// one ddprun runs on machines with either, and on machines without where nobody asks for TLS. The declarations are
// ours; a test compares them with the real headers where these are installed.
#pragma once

#include <cstddef>

namespace ddp::rendezvous {

// Opaque, as OpenSSL's types are.
struct TlsMethod;
struct TlsConfiguration;  // SSL_CTX
struct TlsConnection;     // SSL
struct TlsBytes;          // BIO
struct TlsBytesMethod;    // BIO_METHOD
struct TlsParameters;     // X509_VERIFY_PARAM
struct TlsStore;          // X509_STORE_CTX

using TlsVerifyCallback = int (*)(int, TlsStore*);
using TlsPasswordCallback = int (*)(char* buffer, int size, int is_writing, void* data);

// Values of openssl/ssl.h and x509v3.h, the same in 1.1 and 3.
inline constexpr int kTlsVerifyPeer = 1;               // SSL_VERIFY_PEER
inline constexpr int kTlsPemFile = 1;                  // SSL_FILETYPE_PEM
inline constexpr int kTlsSetLeastVersion = 123;        // SSL_CTRL_SET_MIN_PROTO_VERSION
inline constexpr long kTlsVersion12 = 0x0303;          // TLS1_2_VERSION
inline constexpr int kTlsSetServerName = 55;           // SSL_CTRL_SET_TLSEXT_HOSTNAME
inline constexpr unsigned kTlsNoPartialWildcards = 4;  // X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS
inline constexpr int kTlsWantsRead = 2, kTlsWantsWrite = 3, kTlsClosedInOrder = 6;  // SSL_ERROR_*
inline constexpr long kTlsVerified = 0;                                             // X509_V_OK
inline constexpr long kTlsSelfSigned = 18, kTlsUnknownAuthority = 20;               // X509_V_ERR_*

struct TlsApi {
  const TlsMethod* (*client_method)();
  TlsConfiguration* (*new_configuration)(const TlsMethod*);
  void (*free_configuration)(TlsConfiguration*);
  long (*control_configuration)(TlsConfiguration*, int command, long number, void* data);
  void (*set_verify)(TlsConfiguration*, int mode, TlsVerifyCallback);
  int (*load_authorities)(TlsConfiguration*, const char* file, const char* folder);
  int (*use_systems_authorities)(TlsConfiguration*);
  int (*use_certificate_chain)(TlsConfiguration*, const char* file);
  int (*use_private_key)(TlsConfiguration*, const char* file, int kind);
  int (*check_private_key)(const TlsConfiguration*);
  void (*set_password_callback)(TlsConfiguration*, TlsPasswordCallback);

  TlsConnection* (*new_connection)(TlsConfiguration*);
  void (*free_connection)(TlsConnection*);
  long (*control_connection)(TlsConnection*, int command, long number, void* data);
  void (*set_bytes)(TlsConnection*, TlsBytes* incoming, TlsBytes* outgoing);  // takes both
  void (*be_client)(TlsConnection*);
  int (*set_expected_name)(TlsConnection*, const char* name);
  void (*set_name_flags)(TlsConnection*, unsigned flags);
  TlsParameters* (*parameters)(TlsConnection*);
  int (*set_expected_address)(TlsParameters*, const char* numeric);
  int (*do_handshake)(TlsConnection*);
  int (*read)(TlsConnection*, void* to, int size);
  int (*write)(TlsConnection*, const void* from, int size);
  int (*error_of)(const TlsConnection*, int returned);
  long (*verify_result)(const TlsConnection*);

  const TlsBytesMethod* (*memory_bytes)();
  TlsBytes* (*new_bytes)(const TlsBytesMethod*);
  int (*read_bytes)(TlsBytes*, void* to, int size);
  int (*write_bytes)(TlsBytes*, const void* from, int size);

  const char* (*verify_text)(long result);
  unsigned long (*next_error)();
  void (*error_text)(unsigned long error, char* to, std::size_t size);
  void (*clear_errors)();
};

// Opens the library once for the process. Throws Error{System} with what was tried and what to do.
const TlsApi& tls_api();
// Opens this file, for tests.
TlsApi open_tls(const char* path);

}  // namespace ddp::rendezvous
