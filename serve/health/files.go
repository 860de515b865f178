package health

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// AliveEvery is how often the file alive is touched, as by Salt 3008.
const AliveEvery = 5 * time.Second

// Files are the probes of Salt 3008 below cachedir/health (salt/cluster/healthchecks.py), for
// supervisors that look at files:
//
//	startup  from the end of the start on: the Unix second of that moment
//	ready    while this master is ready for minions: the second since when (Salt's stays for ever)
//	alive    touched every 5 s while the master's loops answer
type Files struct {
	dir string
	log *slog.Logger
}

// NewFiles empties the folder, so that no probe passes on what an earlier process wrote.
func NewFiles(dir string, log *slog.Logger) (*Files, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty folder of health files: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of health files: %w", err)
	}
	return &Files{dir: dir, log: log}, nil
}

// Started writes the file startup.
func (f *Files) Started() { f.write("startup") }

// Run keeps the files ready and alive true until ctx ends, then takes ready away. alive says within
// which time the master's loops answered.
func (f *Files) Run(ctx context.Context, s State, alive func(context.Context) error) {
	defer os.Remove(filepath.Join(f.dir, "ready"))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	wasReady := false
	var touched time.Time
	for {
		if ready := s.Ready(); ready != wasReady {
			wasReady = ready
			if ready {
				f.write("ready")
			} else if err := os.Remove(filepath.Join(f.dir, "ready")); err != nil {
				f.log.Warn("health file not removed", "file", "ready", "err", err)
			}
		}
		if time.Since(touched) >= AliveEvery && alive(ctx) == nil {
			touched = time.Now()
			f.touch("alive")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// touch writes a file, or sets the time of one that is there, which a full disk does not refuse.
func (f *Files) touch(name string) {
	now := time.Now()
	err := os.Chtimes(filepath.Join(f.dir, name), now, now)
	if os.IsNotExist(err) {
		f.write(name)
	} else if err != nil {
		f.log.Warn("health file not touched", "file", name, "err", err)
	}
}

// write puts a file in place whole. A failure is logged: no master ends because a probe can't be
// written.
func (f *Files) write(name string) {
	path := filepath.Join(f.dir, name)
	err := os.WriteFile(path+".tmp", []byte(strconv.FormatInt(time.Now().Unix(), 10)), 0o644)
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		f.log.Warn("health file not written", "file", name, "err", err)
	}
}
