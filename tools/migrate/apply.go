package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clustermaster/config"
	"clustermaster/keystore"
	"clustermaster/salt/cli"
	"clustermaster/serve/operator"
)

// addedFile is the file of master.d that apply writes and rollback removes.
func addedFile(o *config.Options) string {
	return filepath.Join(filepath.Dir(o.ConfFile), "master.d", "clustermaster.conf")
}

// migration is one run of apply or rollback.
type migration struct {
	flags
	functions []string
	out       io.Writer
}

// say prints a finished step.
func (m *migration) say(format string, args ...any) { fmt.Fprintf(m.out, format+"\n", args...) }

// apply replaces Salt's master. Until it stops Salt's master it writes only this package's own
// files; after that a failure restores everything.
func (m *migration) apply(ctx context.Context) error {
	p, err := look(ctx, m.flags, m.functions, os.Getenv)
	if err != nil {
		return err
	}
	o := p.options
	before, err := findJournal(o)
	if err != nil {
		return err
	}
	if before != nil && before.State == applied {
		return fmt.Errorf("it is applied already, since %s; clustermaster migrate rollback undoes it", before.Began.Format(time.RFC3339))
	}
	if before != nil {
		return fmt.Errorf("a migration that began %s was interrupted; end it with clustermaster migrate rollback",
			before.Began.Format(time.RFC3339))
	}
	if list := p.blockers(); len(list) > 0 {
		return fmt.Errorf("nothing was changed; correct first:\n  %s", strings.Join(list, "\n  "))
	}
	text, err := m.newOptions(p)
	if err != nil {
		return err
	}
	wanted, err := keysIn(o.KeysDir())
	if err != nil {
		return err
	}
	j := &journal{
		Began: time.Now().UTC(), State: applying, Conf: filepath.Dir(o.ConfFile), Pki: o.KeysDir(),
		Sock: o.SockDir, Key: p.MasterKey, Release: p.Release, Added: addedFile(o),
		dir: stateDir(o.CacheDir),
	}
	if err := m.keep(j, o); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	m.say("kept     the former configuration and keys in %s", filepath.Join(j.dir, "before"))
	if err := m.replace(ctx, j, o, text, wanted); err != nil {
		m.say("failed   %v", err)
		if undo := m.putBack(context.WithoutCancel(ctx), j, o); undo != nil {
			return fmt.Errorf("%w; Salt's master could not be restored: %w; the former files are in %s; "+
				"clustermaster migrate rollback tries again", err, undo, j.dir)
		}
		return fmt.Errorf("%w; Salt's master was restored", err)
	}
	return nil
}

// newOptions is the text of the file in master.d.
func (m *migration) newOptions(p *Plan) (string, error) {
	text := "# Written by clustermaster migrate apply; migrate rollback removes it.\n" +
		journalAt + stateDir(p.options.CacheDir) + "\n"
	for _, api := range []string{"rest_cherrypy", "rest_tornado"} {
		if p.options.Extra[api] != nil && p.options.Extra["enable_clear_commands"] == nil {
			text += "# salt-api orders on the request port.\nenable_clear_commands: True\n"
			break
		}
	}
	if m.extra != "" {
		b, err := os.ReadFile(m.extra)
		if err != nil {
			return "", fmt.Errorf("nothing was changed: --options: %w", err)
		}
		text += string(b)
	}
	return text, nil
}

// keep writes the journal and copies everything that apply or this master may change.
func (m *migration) keep(j *journal, o *config.Options) error {
	kept := filepath.Join(j.dir, "before")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	if err := copyTree(j.Conf, filepath.Join(kept, "conf")); err != nil {
		return fmt.Errorf("copy the configuration: %w", err)
	}
	for name, dir := range map[string]string{"pki": o.PkiDir, "cluster_pki": o.ClusterPkiDir} {
		if dir == "" || dir == o.PkiDir && name != "pki" {
			continue
		}
		if err := copyTree(dir, filepath.Join(kept, name)); err != nil {
			return fmt.Errorf("copy keys: %w", err)
		}
	}
	return j.save()
}

// replace takes the steps that change the machine.
func (m *migration) replace(ctx context.Context, j *journal, o *config.Options, text string,
	wanted map[string]string) error {
	if err := os.MkdirAll(filepath.Dir(j.Added), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(j.Added, []byte(text), 0o640); err != nil {
		return err
	}
	next, _, err := config.Load(m.dir, os.Getenv)
	if err != nil {
		return fmt.Errorf("the configuration with %s is refused: %w", j.Added, err)
	}
	if err := letRead(j.Added, next.User); err != nil {
		return err
	}
	m.say("wrote    %s", j.Added)
	if err := ctx.Err(); err != nil {
		return err
	}
	j.Stopped = true
	if err := j.save(); err != nil {
		return err
	}
	release := m.hold(o)
	defer release()
	began := time.Now()
	if err := m.halt(ctx, o); err != nil {
		return fmt.Errorf("stop Salt's master: %w", err)
	}
	removeMarks(o.SockDir)
	leaveSocket(o.SockDir)
	m.say("stopped  Salt's master, in %.1f s", time.Since(began).Seconds())
	if err := j.sameConf(o.Files()); err != nil { // --stop may install
		return err
	}
	if m.found {
		if err := orderFounding(o); err != nil {
			return err
		}
	}
	if err := m.shell(ctx, m.start); err != nil {
		return fmt.Errorf("start this master: %w", err)
	}
	if err := j.sameConf(o.Files()); err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	release()
	m.say("started  this master; it serves %.1f s after the stop began", time.Since(began).Seconds())
	joined := next.ClusterID != "" && !m.found
	notes, err := m.sameKeys(ctx, o, wanted, joined)
	if err != nil {
		return err
	}
	m.say("compared %d keys: %d are in the state that they had", len(wanted), len(wanted)-len(notes))
	for _, note := range notes {
		m.say("note     %s", note)
	}
	var cached string
	if _, err := cli.Query(ctx, os.Getenv, m.dir, &cached, "cache.migrate"); err != nil {
		return fmt.Errorf("take over caches: %w", err)
	}
	var jobs struct{ Jobs, Returns, Failed int }
	if _, err := cli.Query(ctx, os.Getenv, m.dir, &jobs, "cluster.adopt_jobs"); err != nil {
		return fmt.Errorf("take over jobs: %w", err)
	}
	m.say("took in  %d jobs with %d returns (%d files could not be read), and caches:\n%s",
		jobs.Jobs, jobs.Returns, jobs.Failed, indent(cached))
	var tokens struct{ Adopted, Expired, Failed int }
	if _, err := cli.Query(ctx, os.Getenv, m.dir, &tokens, "auth.adopt_tokens"); err != nil {
		return fmt.Errorf("take over tokens: %w", err)
	}
	m.say("took in  %d tokens (%d had expired, %d files could not be read)", tokens.Adopted,
		tokens.Expired, tokens.Failed)
	j.State = applied
	if err := j.save(); err != nil {
		return err
	}
	m.say("done     check the box with clustermaster doctor; clustermaster migrate rollback undoes this")
	return nil
}

// letRead lets the group of the master's user read a file, whatever the umask.
func letRead(path, name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("user: %w; make it, or name another", err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(path, -1, gid)
	}
	return errors.Join(err, os.Chmod(path, 0o640))
}

// orderFounding makes the file by which this master founds the cluster of cluster_peers at its
// first start, without those that do not answer. It belongs to the owner of cachedir.
func orderFounding(o *config.Options) error {
	if err := os.MkdirAll(o.DataDir(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(o.FoundFile(), nil, 0o600); err != nil {
		return err
	}
	info, err := os.Stat(o.CacheDir)
	if err != nil {
		return err
	}
	for _, path := range []string{o.DataDir(), o.FoundFile()} {
		if err := keystore.OwnAs(path, info); err != nil {
			return err
		}
	}
	return nil
}

func indent(text string) string {
	return "           " + strings.ReplaceAll(text, "\n", "\n           ")
}

// patience is how many times --wait a command may take. A package manager that is killed leaves
// packages half installed, and the next one refuses to run.
const patience = 5

// shell runs an operator's command, to its end even if ctx ends meanwhile; that is an error then.
func (m *migration) shell(ctx context.Context, command string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wait := time.Duration(m.wait * float64(time.Second))
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience*wait)
	defer cancel()
	cmd := exec.CommandContext(limit, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, nil, nil
	said, err := os.CreateTemp("", "clustermaster-migrate")
	if err != nil {
		return err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said // a file, because a started daemon may keep it open
	// A terminal that goes does not end it, and at the limit all that it has started ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = wait
	if err = cmd.Start(); err == nil {
		err = m.ended(ctx, cmd)
	}
	if limit.Err() != nil && cmd.Process != nil {
		latest, _ := limit.Deadline()
		if !gone(cmd.Process.Pid, time.Until(latest.Add(wait))) {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may just have ended
			gone(cmd.Process.Pid, killed)
		}
		err = fmt.Errorf("not done after %v, %d times --wait", patience*wait, patience)
	}
	if err != nil {
		b, _ := os.ReadFile(said.Name())
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(b)))
	}
	return nil
}

// ended waits for a command. If ctx ends first, it says so, and that is the error.
func (m *migration) ended(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	m.say("note     interrupted; waits for the end of its command (kill -- -%d ends it now, and may leave "+
		"packages half installed)", cmd.Process.Pid)
	if err := <-done; err != nil {
		return err
	}
	return context.Cause(ctx)
}

// killed bounds the wait for killed processes: one that nobody reaps stays for ever.
const killed = 10 * time.Second

// gone waits until a process group has ended: it may hold the lock of the packages.
func gone(group int, within time.Duration) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(within); syscall.Kill(-group, 0) == nil; {
		select {
		case <-end:
			return false
		case <-tick.C:
		}
	}
	return true
}

// until calls check until it returns nil, or the time of --wait has passed.
func (m *migration) until(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(m.wait*float64(time.Second)))
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v s: %w", m.wait, err)
		case <-tick.C:
		}
	}
}

// halt stops the running master and waits until its process has ended, after it removed its
// pidfile.
func (m *migration) halt(ctx context.Context, o *config.Options) error {
	pid := process(o.PidFile)
	if err := m.shell(ctx, m.stop); err != nil {
		return err
	}
	if err := m.freed(ctx, o); err != nil {
		return err
	}
	return m.until(ctx, func() error {
		if pid > 0 && syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

// freed waits until the minion ports are free.
func (m *migration) freed(ctx context.Context, o *config.Options) error {
	return m.until(ctx, func() error {
		for _, port := range []int{o.PublishPort, o.RetPort} {
			ln, err := new(net.ListenConfig).Listen(ctx, "tcp", o.ListenAddr(port))
			if errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("the master that was stopped (--stop) still has %s",
					o.ListenAddr(port))
			}
			if err != nil {
				return err
			}
			ln.Close()
		}
		return nil
	})
}

// ready waits until this master serves.
func (m *migration) ready(ctx context.Context) error {
	err := m.until(ctx, func() error {
		o, _, err := config.Load(m.dir, os.Getenv)
		if err != nil {
			return err
		}
		var members struct{}
		if _, err := cli.Query(ctx, os.Getenv, m.dir, &members, "cluster.members"); err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", o.ListenAddr(o.RetPort), time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("the new master does not serve: %w", err)
	}
	return nil
}

// keysIn maps ids to states, for the keys of a folder.
func keysIn(dir string) (map[string]string, error) {
	list, err := keystore.ReadDir(dir)
	out := make(map[string]string)
	for _, k := range list {
		if k.State != keystore.Denied {
			out[k.ID] = k.State.String()
		}
	}
	return out, err
}

// states maps ids to their states, without denied keys.
func states(keys []operator.Key) map[string]string {
	out := make(map[string]string)
	for _, k := range keys {
		if k.State != keystore.Denied.String() {
			out[k.ID] = k.State
		}
	}
	return out
}

// sameKeys waits until the running master has the earlier keys. If it joined a cluster, notes are
// the keys that it has otherwise.
func (m *migration) sameKeys(ctx context.Context, o *config.Options, wanted map[string]string,
	joined bool) (notes []string, err error) {
	err = m.until(ctx, func() error {
		keys, err := m.running(ctx, o)
		if err == nil {
			notes, err = compareKeys(wanted, states(keys), joined)
		}
		return err
	})
	return notes, err
}

// compareKeys is an error if a key is missing. A master that joined brings only accepted keys whose
// ids the cluster does not know; notes are the other differences.
func compareKeys(wanted, got map[string]string, joined bool) (notes []string, err error) {
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		was, is := wanted[id], got[id]
		switch {
		case is == was || was == keystore.Pending.String() && is != "":
		case joined && is == "" && was != keystore.Accepted.String():
			notes = append(notes, fmt.Sprintf("the key of %s was in %s; the cluster has none of this id", id, was))
		case joined && is != "":
			notes = append(notes, fmt.Sprintf("the key of %s was in %s; the cluster has it in %s, which counts", id, was, is))
		default:
			return nil, fmt.Errorf("the key of %s was in %s, and is in %q now", id, was, is)
		}
	}
	return notes, nil
}

// marks are files in sock_dir that tell Salt's clients that a master runs; Salt's master fails if
// one is a plain file.
var marks = []string{"publish_pull.ipc", "workers.ipc", "master_event_pub.ipc",
	"master_event_pull.ipc"}

func removeMarks(sock string) {
	for _, name := range marks {
		_ = os.Remove(filepath.Join(sock, name)) // a missing one is fine
	}
}

// runs is the options of the master that runs, if apply was to start one with o: other ones if a
// command took files of the configuration away.
func (m *migration) runs(j *journal, o *config.Options) *config.Options {
	if process(o.PidFile) > 0 || j.sameConf(o.Files()) == nil {
		return o
	}
	now, _, err := config.Inspect(m.dir, os.Getenv)
	if err != nil || process(now.PidFile) == 0 {
		return o
	}
	return now
}

// putBack restores the machine for Salt's master as it was before apply. It starts Salt's master
// also where files could not be restored.
func (m *migration) putBack(ctx context.Context, j *journal, o *config.Options) error {
	runs := m.runs(j, o)
	if process(runs.PidFile) > 0 {
		if err := m.giveUpVote(ctx); err != nil && !errors.Is(err, cli.ErrDown) {
			m.say("note     the members of the cluster are unknown: %v", err)
		}
	}
	if err := os.Remove(j.Added); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !j.Stopped {
		return m.forget(j)
	}
	if process(runs.PidFile) > 0 {
		if err := m.halt(ctx, runs); err != nil {
			return err
		}
	}
	if runs != o {
		m.say("note     this master ran without all files of its configuration; remove what it left in %s and %s",
			runs.DataDir(), runs.KeysDir())
	}
	removeMarks(o.SockDir)
	leaveSocket(o.SockDir)
	files := errors.Join(m.restoreConf(j, j.changedConf(o.Files())),
		copyTree(filepath.Join(j.dir, "before", "pki"), o.PkiDir), m.peers(j, o),
		m.aside(j, o.DataDir()))
	if files != nil {
		m.say("failed   %v", files)
	}
	m.recall(o)
	if err := m.shell(ctx, m.undo); err != nil {
		return fmt.Errorf("start Salt's master: %w", err)
	}
	if err := m.listens(ctx, o); err != nil {
		return err
	}
	if files != nil {
		return fmt.Errorf("it runs, without all of its former files: %w", files)
	}
	return m.forget(j)
}

// restoreConf puts files of the configuration back as they were before apply.
func (m *migration) restoreConf(j *journal, list []string) error {
	for _, path := range list {
		kept := j.keptConf(path)
		info, err := os.Lstat(kept)
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), copyEntry(kept, path, info)); err != nil {
			return err
		}
		m.say("restored %s", path)
	}
	return nil
}

// aside moves the data of this master, which has stopped, to the journal. Otherwise the next apply
// would use it in place of the keys that Salt's master has by then.
func (m *migration) aside(j *journal, data string) error {
	if _, err := os.Stat(data); err == nil {
		if err := os.Rename(data, filepath.Join(j.dir,
			fmt.Sprintf("data-%d", time.Now().UnixNano()))); err != nil {
			return err
		}
	}
	// Without this file the keys in the folder are Salt's again, and the next apply imports them.
	if err := os.Remove(filepath.Join(j.Pki, keystore.JournalName)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// forget ends a migration: it moves the journal aside.
func (m *migration) forget(j *journal) error {
	old := j.dir + "-" + time.Now().UTC().Format("20060102T150405.000")
	m.say("moved    journal, former files and the data of this master to %s; remove it when you no longer need it", old)
	return os.Rename(j.dir, old)
}

// rollback returns the machine to Salt's master, with the present keys.
func (m *migration) rollback(ctx context.Context) error {
	o, _, err := config.Inspect(m.dir, os.Getenv)
	if err != nil {
		return err
	}
	j, err := findJournal(o)
	if err != nil {
		return err
	}
	if j == nil {
		err := fmt.Errorf("no migration is recorded in %s; nothing was changed", stateDir(o.CacheDir))
		if !o.HasFile() {
			err = fmt.Errorf("%w (%s)", err, o.NoFile())
		}
		return err
	}
	if !o.HasFile() { // for example after apt purge salt-master
		if err := m.restoreConf(j, j.changedConf([]string{o.ConfFile})); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
		if o, _, err = config.Inspect(m.dir, os.Getenv); err != nil {
			return err
		}
	}
	if stateDir(o.CacheDir) != j.dir {
		return fmt.Errorf("nothing was changed: cachedir is %s, and the migration is recorded in %s; set cachedir as "+
			"before apply (the former file is %s)", o.CacheDir, j.dir, j.keptConf(o.ConfFile))
	}
	before := connections(o.ListenAddr(o.PublishPort))
	release := m.hold(o)
	defer release()
	state := rollingBack
	keys, err := m.prepare(ctx, j, o)
	switch {
	case err == nil:
		if !j.written(o) {
			j.Keys, j.KeysAt = keys, time.Now().UTC()
		}
	case !errors.Is(err, operator.ErrNoMaster):
		return fmt.Errorf("this master goes on: %w", err)
	case !j.KeysAt.IsZero():
		m.say("note     this master does not run: the keys that it had %s count", j.KeysAt.Format(time.RFC3339))
	case j.written(o) || j.State == applying || j.State == keysBack:
		state = keysBack
		m.say("note     this master does not run: the keys in %s count", j.Pki)
	default:
		return fmt.Errorf("this master does not run, and only it knows which keys were accepted, rejected or "+
			"deleted since %s, for it does not write to %s; start it, and run the command again",
			j.Began.Format(time.RFC3339), j.Pki)
	}
	j.State = state
	if err := j.save(); err != nil {
		return err
	}
	if err := m.halt(ctx, o); err != nil {
		return fmt.Errorf("stop this master: %w; run the command again", err)
	}
	removeMarks(j.Sock)
	leaveSocket(j.Sock)
	m.say("stopped  this master")
	if !j.KeysAt.IsZero() {
		if err := m.writeKeys(j); err != nil {
			return fmt.Errorf("write keys to %s: %w; run the command again", j.Pki, err)
		}
	}
	if err := os.Remove(j.Added); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.say("removed  %s", j.Added)
	if err := m.peers(j, o); err != nil {
		return err
	}
	if err := m.aside(j, o.DataDir()); err != nil {
		return err
	}
	if now := fingerprint(o); now != j.Key && j.Key != "" {
		if err := m.masterKey(j, o); err != nil {
			return fmt.Errorf("restore the master's key: %w", err)
		}
		m.say("restored the master's key")
	}
	m.recall(o)
	if err := m.shell(ctx, m.start); err != nil {
		return fmt.Errorf("start Salt's master: %w; run the command again", err)
	}
	if err := m.listens(ctx, o); err != nil {
		return err
	}
	m.say("started  Salt's master; it listens")
	m.back(ctx, o, before)
	release()
	if err := m.forget(j); err != nil {
		return err
	}
	m.say("done     this box runs Salt's master again")
	return nil
}

// prepare gets a running master ready for its end: its vote goes to the other masters, its keys are
// in pki_dir, and the commands that run get time to end. It returns the keys of that moment: other
// masters may have changed some meanwhile.
func (m *migration) prepare(ctx context.Context, j *journal, o *config.Options) ([]operator.Key, error) {
	settled := time.After(settle)
	if _, err := m.running(ctx, o); err != nil {
		return nil, err
	}
	if j.State == keysBack || !j.KeysAt.IsZero() { // it was started since
		j.State, j.Keys, j.KeysAt = rollingBack, nil, time.Time{}
		if err := j.save(); err != nil {
			return nil, err
		}
	}
	m.returnData(ctx, j, o)
	select {
	case <-settled:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, err := m.writtenKeys(ctx, j, o); err != nil {
		return nil, err
	}
	if err := m.giveUpVote(ctx); err != nil {
		return nil, err
	}
	keys, err := m.writtenKeys(ctx, j, o)
	if err != nil {
		return nil, fmt.Errorf("without a vote, which salt-run cluster.promote returns: %w", err)
	}
	if j.written(o) {
		m.say("wrote    %d keys to %s", len(keys), j.Pki)
	}
	return keys, nil
}

// written reports whether the running master keeps the folder of keys as Salt's master reads it.
func (j *journal) written(o *config.Options) bool {
	return !o.SharedKeys() && !keystore.HasMmap(j.Pki)
}

// writtenKeys returns the keys of the running master, as soon as they are in the folder that it
// writes.
func (m *migration) writtenKeys(ctx context.Context, j *journal, o *config.Options) (keys []operator.Key,
	err error) {
	err = m.until(ctx, func() error {
		if keys, err = m.running(ctx, o); err == nil && j.written(o) {
			err = written(j.Pki, states(keys))
		}
		return err
	})
	return keys, err
}

// giveUpVote has the other masters, if there are any, agree without this one.
func (m *migration) giveUpVote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(m.wait*float64(time.Second)))
	defer cancel()
	var members struct {
		ID     string   `json:"node_id"`
		Voters []string `json:"voters"`
	}
	if _, err := cli.Query(ctx, os.Getenv, m.dir, &members, "cluster.members"); err != nil {
		return err
	}
	if len(members.Voters) < 2 || !slices.Contains(members.Voters, members.ID) {
		return nil
	}
	var left any
	if _, err := cli.Query(ctx, os.Getenv, m.dir, &left, "cluster.demote", members.ID); err != nil {
		m.say("note     the vote of this master could not be taken: %v; if the others have no quorum without it, "+
			"run salt-run cluster.recover on the founder", err)
		return nil
	}
	m.say("demoted  %s: the other masters agree without it", members.ID)
	return nil
}

// returnData has the master write caches and jobs where Salt's master reads them.
func (m *migration) returnData(ctx context.Context, j *journal, o *config.Options) {
	release := 3006
	if _, err := os.Stat(filepath.Join(o.CacheDir, "grains")); err == nil {
		release = 3008
	}
	if found := releaseNumber.FindString(j.Release); found != "" {
		release, _ = strconv.Atoi(found)
	}
	var done struct {
		Banks                 map[string]int
		Jobs, Returns, Failed int
		Incomplete            string
	}
	const day = 24 * time.Hour // jids are in the local time of the machine that made them
	if _, err := cli.Query(ctx, os.Getenv, m.dir, &done, "cluster.return_to_salt",
		strconv.Itoa(release), "since="+j.Began.Add(-day).Format("20060102")); err != nil {
		m.say("note     caches and jobs were not written back: %v", err)
		return
	}
	var banks []string
	for _, bank := range slices.Sorted(maps.Keys(done.Banks)) {
		banks = append(banks, fmt.Sprintf("%d of %s", done.Banks[bank], bank))
	}
	m.say("wrote    files of caches (%s) and %d jobs with %d returns",
		strings.Join(banks, ", "), done.Jobs, done.Returns)
	if done.Failed > 0 {
		m.say("note     no file could be made for %d values and returns; this master's log names them", done.Failed)
	}
	if done.Incomplete != "" {
		m.say("note     %s", done.Incomplete)
	}
}

var releaseNumber = regexp.MustCompile(`\b300[6-8]\b`)

// writeKeys writes the keys of the journal where this master does not: to a folder that several
// masters share, and to the files of Salt's driver mmap_key. It does so once: after that they are
// those of Salt's master.
func (m *migration) writeKeys(j *journal) error {
	list := make([]keystore.Key, 0, len(j.Keys))
	for _, k := range j.Keys {
		state, ok := keystore.ParseState(k.State)
		if !ok {
			return fmt.Errorf("%s: unknown state %q", k.ID, k.State)
		}
		list = append(list, keystore.Key{ID: k.ID, State: state, Pub: k.Pub, Since: time.Now()})
	}
	if err := keystore.WriteDir(j.Pki, list); err != nil {
		return err
	}
	m.say("wrote    %d keys to %s", len(list), j.Pki)
	j.State, j.Keys, j.KeysAt = keysBack, nil, time.Time{}
	return j.save()
}

// peers restores the public keys of Salt's masters, if this master wrote those of its own kind in
// their place.
func (m *migration) peers(j *journal, o *config.Options) error {
	dir := filepath.Join(j.Pki, "peers")
	if _, err := os.Stat(filepath.Join(dir, keystore.JournalName)); err != nil {
		return nil
	}
	name := "cluster_pki"
	if j.Pki == o.PkiDir {
		name = "pki"
	}
	kept := filepath.Join(j.dir, "before", name, "peers")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return copyTree(kept, dir)
}

// listens waits until Salt's master listens. If clustermaster listens in its place, it fails.
func (m *migration) listens(ctx context.Context, o *config.Options) error {
	err := m.until(ctx, func() error {
		conn, err := net.DialTimeout("tcp", o.ListenAddr(o.RetPort), time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("the master of Salt does not listen: %w", err)
	}
	c, err := operator.Dial(ctx, o.SockDir)
	if errors.Is(err, operator.ErrNoMaster) {
		return nil
	}
	if err == nil {
		c.Close()
	}
	return errors.New("clustermaster was started, not Salt's master; give a command that installs " +
		"Salt's first")
}

// masterKey restores the earlier key pair, and that of Salt's cluster.
func (m *migration) masterKey(j *journal, o *config.Options) error {
	for from, to := range map[string]string{"pki/master.*": o.PkiDir,
		"cluster_pki/cluster.*": o.ClusterPkiDir} {
		found, err := filepath.Glob(filepath.Join(j.dir, "before", from))
		if err != nil {
			return err
		}
		for _, path := range found {
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			if err := copyEntry(path, filepath.Join(to, filepath.Base(path)), info); err != nil {
				return err
			}
		}
	}
	return nil
}

// written returns an error unless a folder has exactly the given keys.
func written(dir string, keys map[string]string) error {
	got, err := keysIn(dir)
	if err != nil {
		return err
	}
	if maps.Equal(got, keys) {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		if got[id] != keys[id] {
			return fmt.Errorf("the key of %s is in %s, but not in %s", id, keys[id], dir)
		}
	}
	return fmt.Errorf("%s has keys that are gone", dir)
}
