package hosted_test

import (
	"errors"
	"testing"

	"clustermaster/salt/hosted"
	"clustermaster/salt/runner"
	"clustermaster/salt/saltpython"
)

// TestRunnersWithoutSalt: a function of Salt's is refused with what to install, an unknown one with
// Salt's text.
func TestRunnersWithoutSalt(t *testing.T) {
	t.Parallel()
	f := hosted.New(hosted.Deps{Find: func() (string, error) { return "", saltpython.ErrMissing }})
	for fun, want := range map[string]string{
		"ssh.cmd":    "'ssh.cmd' is not available: " + saltpython.ErrMissing.Error(),
		"nosuch.fun": "'nosuch.fun' is not available.",
	} {
		if _, err := f.Runners.Lookup(fun); !errors.Is(err, runner.ErrUnknown) || err.Error() != want {
			t.Errorf("%s: %v, want %s", fun, err, want)
		}
	}
}
