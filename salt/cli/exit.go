package cli

// Exit codes of Salt's commands.
const (
	ExitOK = 0
	// a minion failed or was silent, a runner function failed, a configuration is broken
	ExitFailed     = 1
	ExitNoReturn   = 2  // nothing returned at all
	ExitIncomplete = 42 // an argument is missing
	ExitUsage      = 64 // a flag is wrong
)
