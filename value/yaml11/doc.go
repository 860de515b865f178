// Package yaml11 reads and prints YAML 1.1 the way Salt's own loader and
// dumper do.
//
// Lives here: the loader (Load, LoadDocument), with the scalar rules of
// PyYAML's safe loader and the changes that Salt makes to them; the dumper
// (Dump), byte-equal to salt.utils.yaml.safe_dump(default_flow_style=False);
// the rule for command-line arguments (ParseArg, ParseArgs); what becomes of it
// on the wire (ToWire).
// Does not: Salt's options (package config), rendering of SLS files with
// templates (package render), output choices (package output).
//
// What differs from a plain YAML 1.2 library, each proven by testdata made by
// the real code:
//
//   - only yes, no, on, off, true, false in three capitalisations are bools;
//   - 0x1f, 0b11, -017 (octal) and 1:30 (base 60) are numbers, 1e3 is text;
//   - a leading zero without a sign is dropped: 017 is 17 (Salt's loader, not
//     PyYAML's, which reads 15);
//   - dates stay text: Salt's loader takes the timestamp type away, so there
//     is no time value here;
//   - a duplicate key is an error with its line, maps keep their order;
//   - merge keys (<<) follow Salt's rule, aliases are bounded.
//
// Values are nil, bool, int64, uint64 and *big.Int (only when the smaller type
// can't hold the number), float64, string, []byte (!!binary), []any, Map and
// Set.
package yaml11
