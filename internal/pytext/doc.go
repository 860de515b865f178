// Package pytext writes wire values as Python writes them: repr, str, float and json.dumps.
//
// Salt's outputters, its state.event runner and many of its error texts are defined by what Python prints for a value, so scripts
// that read them depend on these forms: the shortest float digits with their ".0", the choice of quotes, the order of keys.
//
// Lives here: text of one value; its truth; the order in which Python sorts strings; integers as Python reads them.
// Does not: layouts of whole documents (package output), YAML (package internal/yaml11).
package pytext
