// Package saltlog writes slog records as Salt's administrators know them: the
// line formats of Salt's console and log file, Salt's level names.
//
// Lives here: the slog.Handler, levels, layouts (Python's % formats, JSON), and
// where lines go: a file that may be renamed, syslog, the journal.
// Does not: decide what is logged (every package), read options (package config).
package saltlog
