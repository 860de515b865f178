package daemon

import "testing"

// An unknown flag is refused in the words of Salt's commands.
func TestUnknownFlags(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--unknown-argument": "no such option: --unknown-argument",
		"--nosuch=1":         "no such option: --nosuch",
		"-z":                 "no such option: -z",
		"--pid-file":         "flag needs an argument: --pid-file",
	} {
		_, _, err := parseMasterFlags([]string{arg})
		if err == nil || usage(err) != want {
			t.Errorf("%s: %v, want %s", arg, usage(err), want)
		}
	}
}
