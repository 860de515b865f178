// Package saltlog writes slog records as Salt's administrators know them: the
// line formats of Salt's console and log file, Salt's level names.
//
// Lives here: the slog.Handler, levels, opening of log files.
// Does not: decide what is logged (every room), read options (package config).
package saltlog
