package pythonhost

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// job makes a call as of salt-run and returns its return, success and exit code as text.
func (s *site) job(t testing.TB, ctx context.Context, out func(string, any), fun string,
	args ...any) (string, error) {
	t.Helper()
	session := s.host.Job()
	defer session.Close()
	v, err := session.Call(ctx, Call{Kind: Runner, Fun: fun, Args: args, JID: "20260101000000000001",
		User: "root", Tag: "salt/run/20260101000000000001", Output: out})
	return fmt.Sprint(v), err
}

// TestSDBDrivers stores and looks up with a driver that releases before 3008 have.
func TestSDBDrivers(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"3006.28", "3007.15"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, release, nil, nil)
			s.host.opts.Opts = s.host.opts.Opts.Set("kept", value.Map{
				{Key: "driver", Value: "sqlite3"}, {Key: "database", Value: s.root + "/sdb.sqlite"},
				{Key: "table", Value: "site"}, {Key: "create_table", Value: true},
			})
			for _, tt := range []struct {
				fun  string
				args []any
				want string
			}{
				{"sdb.set", []any{"sdb://kept/a", "one"}, "true"},
				{"sdb.get", []any{"sdb://kept/a"}, "one"},
				{"sdb.get", []any{"sdb://kept/none"}, "<nil>"},
				{"sdb.get_or_set_hash", []any{"sdb://kept/a"}, "one"},
			} {
				got, err := s.job(t, t.Context(), nil, tt.fun, tt.args...)
				if want := "[{return " + tt.want + "} {success true} {retcode 0}]"; err != nil ||
					got != want {
					t.Errorf("%s %v: %s %v, want %s", tt.fun, tt.args, got, err, want)
				}
			}
		})
	}
}

const slowRunner = `
import time


def waits():
    print("begun")
    time.sleep(600)


def late(seconds):
    time.sleep(seconds)
    return "in time"
`

// TestRunnerTimeout: a limit for runner functions ends one that hangs; its error names the
// function, its file and the option.
func TestRunnerTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/runners/slow.py": slowRunner},
		func(o *Options) { o.Runner = 2 * time.Second })
	_, err := s.job(t, t.Context(), nil, "slow.waits")
	want := "function slow.waits (module slow of " + s.root + "/ext/runners/slow.py) took longer " +
		"than 2s and was stopped (option python_runner_timeout)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if got, err := s.job(t, t.Context(), nil, "slow.late", 0); err != nil ||
		!strings.Contains(got, "in time") {
		t.Errorf("the next call: %s %v", got, err)
	}
}

// TestJobs calls runner functions: they may take longer than a pillar's, end with their caller, and
// pillars do not wait for them.
func TestJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/runners/slow.py": slowRunner,
		"ext/modules/fact.py": factModule}, func(o *Options) {
		o.Timeout, o.Children = 2*time.Second, 1
	})
	if got, err := s.job(t, t.Context(), nil, "slow.late", 3); err != nil ||
		!strings.Contains(got, "in time") {
		t.Errorf("a long call: %s %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan any, 10), make(chan error, 1)
	go func() {
		_, err := s.job(t, ctx, func(kind string, v any) { begun <- v }, "slow.waits")
		ended <- err
	}()
	select {
	case v := <-begun:
		if v != "begun\n" {
			t.Errorf("printed %q", v)
		}
	case err := <-ended:
		t.Fatalf("ended before it printed: %v", err)
	}
	session := s.host.Session(minion("web1")) // the one child that pillars may have
	call(t, session, "test.ping")
	session.Close()
	cancel()
	if err := <-ended; err == nil {
		t.Error("the call outlived its caller")
	}
}

// TestJobLimit gives a job a time limit, and sees what it logs.
func TestJobLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/runners/logs.py": `
import logging
import time


def waits():
    logging.getLogger(__name__).error("it waits")
    time.sleep(600)
`}, nil)
	session := s.host.Job()
	defer session.Close()
	var logged []string
	_, err := session.Call(t.Context(), Call{Kind: Runner, Fun: "logs.waits", Limit: time.Second,
		LimitOption: "some_timeout", Logged: func(level int, text string) {
			if level >= 40 {
				logged = append(logged, fmt.Sprint(level, " ", text))
			}
		}})
	want := "function logs.waits (module logs of " + s.root + "/ext/runners/logs.py) " +
		"took longer than 1s and was stopped (option some_timeout)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(logged) != 1 || logged[0] != "40 it waits" {
		t.Errorf("logged %q", logged)
	}
}
