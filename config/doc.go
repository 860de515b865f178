// Package config reads a Salt master's configuration folder.
//
// Lives here: DIR/master with its includes as Salt merges them, Salt's option names, types and
// defaults (options.tsv), our own options, the root_dir rules, and the validation that reports
// every problem at once with file, line and option. Does not: carry out options (the packages that
// use them do), handle users and sockets (cmd/clustermaster), read keys.
//
// Guarantee: Load returns either options that all have the type and range of their fields, or an
// error that names every option to change and how.
//
// Where Salt's master starts with a value that it can't use (a wrong type, a
// misspelt cluster_ option, a feature that is missing here and whose absence
// would be unsafe), Load refuses; other unknown options are warnings.
package config
