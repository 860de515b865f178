// Package output prints results as Salt's outputters print them.
//
// Lives here: the outputters nested, highstate, json, yaml, txt (text), raw, pprint, table, key and
// no_return, byte-equal to Salt's; the choice among them (--out, the option output, what the result
// asks for); colours. Two outputters that Salt took away after 3006 but scripts still use:
// newline_values_only and quiet. Does not: flags (package cli), YAML itself (package value/yaml11),
// repr and JSON of single values (package value).
//
// Values are wire values: value.Map in the order it came in, []any, string, []byte, integers,
// float64, bool, nil.
//
// Guarantee: for the samples in testdata the bytes are those of salt.output of Salt 3008.3, in
// colour and without.
package output
