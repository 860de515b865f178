// Package wire holds the messages that Salt's minions and masters exchange, and their cryptography.
//
// Lives here: the request envelope (versions 0 to 3), Crypticle (AES-192-CBC with HMAC-SHA256),
// Salt's RSA forms (PKCS#1 v1.5 signatures, OAEP, ANSI X9.31), sign-in replies, sealed and private
// replies, publications, session key derivation, job ids and time stamps; and the minion's half of
// the same, for simulated minions and tests.
//
// Does not: values and msgpack (package value), sockets and framing (package transport), looking up
// keys, deciding what a request may do, keeping state. It keeps one thing: a minion's verified
// token beside its public key (PublicKey.VerifyToken), because the token never changes while the
// key stays.
//
// Guarantee: no input makes this package panic, and memory taken while decoding is bounded by a
// constant times the length of the input.
package wire
