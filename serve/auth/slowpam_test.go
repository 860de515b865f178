package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestSlowPAM: an attempt that takes too long is reported as such, not as the signal that ends it.
func TestSlowPAM(t *testing.T) {
	t.Parallel()
	p := &pam{service: "login", patience: 50 * time.Millisecond,
		python: func(context.Context) ([]string, error) {
			return []string{"/bin/sh", "-c", "exec sleep 60"}, nil
		}}
	_, ok, err := p.check(t.Context(), "carol", "word")
	if ok || !errors.Is(err, errSlowPAM) || !strings.HasSuffix(err.Error(), "/etc/pam.d/login") {
		t.Errorf("%v, %v", ok, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, ok, err = p.check(ended, "carol", "word"); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller ended: %v, %v", ok, err)
	}
}
