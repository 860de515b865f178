// Package value holds the values that Salt's programs exchange, and Python's rules for them.
//
// Lives here: the ordered map (Map) and its encoded form (Raw, RawMap), msgpack as Salt writes it
// (Pack, Unpack), Python's str, repr, truth, equality and order, json.dumps, Salt's
// traverse_dict_and_list (Traverse) and its merging of maps (Merge, Recurse, Update).
//
// Does not: YAML (package yaml11), envelopes, keys and ciphers (package wire), layouts of documents
// (package output).
//
// A value is nil, bool, int64, uint64 (above MaxInt64), *big.Int (above MaxUint64 or below
// MinInt64; from YAML only), float64, string, []byte, []any, Map, Set (from YAML only), Time or
// Const. Pack writes a *big.Int as text and a Set as a list, as Salt does.
//
// Guarantee: no input makes this package panic, memory taken while decoding is bounded by a
// constant times the length of the input, and what Pack writes Unpack reads back equal.
//
// # Why an own msgpack codec
//
// Salt writes the old specification of msgpack only: one raw family for text and bytes, never str8
// or bin. The usual library, vmihailenco/msgpack, always writes str8 for texts of 32 to 255 bytes,
// decodes maps into Go maps and so loses the order that signatures over re-packed loads need, and
// copies each value out of an io.Reader. The codec here works on byte slices: values can be left
// encoded (Raw, RawMap) and passed from a minion's request into storage without being decoded at
// all.
//
// # Text and bytes
//
// The peers can't tell text from bytes either: a raw, str or bin value that is valid UTF-8 is text,
// anything else is bytes. Unpack does the same.
//
// # Sharing of memory
//
// Decoded []byte and Raw values are slices of the input: a reference to one keeps the whole input
// alive. Do not modify either. Merging writes to neither of its maps; results share values with
// them.
package value
