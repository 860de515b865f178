// Package wire turns the bytes that Salt's minions and masters exchange into Go values, and back.
//
// Lives here: msgpack as Salt writes it, the request envelope (versions 0 to 3), Crypticle (AES-192-CBC with
// HMAC-SHA256), Salt's RSA forms (PKCS#1 v1.5 signatures, OAEP, ANSI X9.31), sign-in replies, sealed and private
// replies, publications, session key derivation, job ids and time stamps; and the minion's half of the same, for
// simulated minions and tests.
//
// Does not: sockets and framing (package transport), looking up keys, deciding what a request may do, keeping state.
// The one thing that is kept is a minion's verified token beside its public key (PublicKey.VerifyToken), because the
// token never changes while the key stays.
//
// Guarantee: no input makes this package panic, memory taken while decoding is bounded by a constant times the length
// of the input, and what Pack writes Unpack reads back equal.
//
// # Why an own msgpack codec
//
// Salt writes the old specification of msgpack only: one raw family for text and bytes, never str8 or bin. The usual
// library, vmihailenco/msgpack, always writes str8 for texts of 32 to 255 bytes, decodes maps into Go maps and so
// loses the order that signatures over re-packed loads need, and copies each value out of an io.Reader. The codec here
// works on byte slices: values can be left encoded (Raw, RawMap) and passed from a minion's request into storage
// without being decoded at all.
//
// # Text and bytes
//
// The peers can't tell text from bytes either: a raw, str or bin value that is valid UTF-8 is text, anything else is
// bytes. Unpack does the same.
//
// # Sharing of memory
//
// Decoded []byte and Raw values are slices of the input. Who keeps one keeps the whole input alive, and must not
// modify either.
package wire
