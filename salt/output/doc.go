// Package output prints results in the formats of Salt's outputters.
//
// Lives here: the outputters nested, highstate, json, yaml, txt (text), raw, pprint, table, key and
// no_return, byte-equal to Salt's; newline_values_only and quiet, which Salt removed after 3006 but
// scripts still use; the choice of an outputter (--out, the option output, the result's own);
// colours. Does not: flags (package cli), YAML itself (package value/yaml11), repr and JSON of
// single values (package value).
//
// Values are wire values: value.Map in the order of arrival, []any, string, []byte,
// integers, float64, bool, nil.
//
// Guarantee: for the samples in testdata the bytes are those of salt.output of Salt 3008.3,
// with and without colours.
package output
