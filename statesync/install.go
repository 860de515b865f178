package statesync

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/store/durable"
)

const (
	keptDir   = "kept"             // folder of StagingDir
	keptStamp = "20060102T150405Z" // names in it begin with the time in this form
)

// prepared is one root with its steps.
type prepared struct {
	Scope
	dir  string
	ops  []op
	need int64 // bytes to be staged
}

// prepare compares a manifest with this master's roots and plans the steps. It changes nothing.
func (s *Store) prepare(ctx context.Context, rec *record, m *Manifest, force bool,
	report *Report) ([]prepared, []installedRoot, error) {
	var out []prepared
	var roots []installedRoot
	for _, want := range m.Roots {
		dir, ok := s.dirOf(m.Tree, want.Scope)
		if !ok {
			report.Missing = append(report.Missing, want.Scope)
			continue
		}
		sc := scanner{hashes: s.hashes}
		now, err := sc.scan(ctx, dir)
		if errors.Is(err, errNoRoot) {
			now, err = &live{}, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(now.held) > 0 {
			for _, text := range now.skipped {
				report.skip(want.Scope, text)
			}
		}
		var base []Item
		first := !rec.has(want.Scope, dir)
		if !first {
			base, _ = rec.manifest.Root(want.Scope)
		}
		if err := s.unmounted(rec, m.Tree, want, base, now); err != nil {
			return nil, nil, err
		}
		p := prepared{Scope: want.Scope, dir: dir,
			ops: plan(want.Scope, want.Items, base, now, first, force, report)}
		for i := range p.ops {
			if p.ops[i].kind == opPut {
				p.need += p.ops[i].item.Size
			}
		}
		out = append(out, p)
		roots = append(roots, installedRoot{want.Scope, dir})
	}
	if err := s.hashes.save(); err != nil {
		s.log.Warn("hashes of files not saved; the next start reads all files again", "err", err)
	}
	return out, roots, nil
}

// unmounted is an error if a root to be changed has lost all items of the last sync, or if a new
// root comes into a folder of environments, or of a pattern's matches, that has. Its file system
// may not be mounted, and would come back without the changes. Force is no remedy, because it is
// given on another master.
func (s *Store) unmounted(rec *record, tree Tree, want Root, base []Item, now *live) error {
	dir, envs, _ := s.place(tree, want.Scope)
	lost := func(dir string, sc Scope, n int) error {
		return fmt.Errorf("root %s of %s is missing or empty here, and had %d items of the last sync: "+
			"mount its file system, or put any file into it if they were deleted on purpose", dir, sc, n)
	}
	switch {
	case len(now.items) > 0 || len(want.Items) == 0:
		return nil
	case len(base) > 0:
		if slices.Equal(base, want.Items) || deleted(dir, envs) {
			return nil
		}
		return lost(dir, want.Scope, len(base))
	case envs == "" || rec.manifest == nil || !emptyDir(envs):
		return nil
	}
	for _, r := range rec.manifest.Roots {
		if at, with, ok := s.place(tree, r.Scope); ok && with == envs && len(r.Items) > 0 &&
			rec.has(r.Scope, at) {
			return lost(envs, r.Scope, len(r.Items))
		}
	}
	return nil
}

// emptyDir reports whether a folder is empty or missing.
func emptyDir(dir string) bool {
	names, err := os.ReadDir(dir)
	return err == nil && len(names) == 0 || errors.Is(err, fs.ErrNotExist)
}

// goal is the desired result of an install.
type goal struct {
	want   *Manifest // what the roots should contain; its contents are in the blob store
	sum    Sum       // of want
	source string    // id of the master whose tree it is
	head   Head      // head to record as installed; Seq 0: none
	base   *Manifest // the head's manifest, to detect drift
	force  bool
}

// install makes this master's roots like the goal. The caller holds t.mu. An error before the
// journal is written leaves the roots as they were.
func (s *Store) install(ctx context.Context, t *treeState, g goal) (*Report, error) {
	head := g.head
	report := &Report{Tree: t.tree, Node: s.peers.Self(), Seq: t.rec.head.Seq}
	if err := s.replay(t); err != nil {
		return report, err
	}
	todo, roots, err := s.prepare(ctx, t.rec, g.want, g.force, report)
	if err != nil {
		return report, err
	}
	report.Changes = nil // only for rehearsals
	for _, r := range t.rec.roots {
		if slices.Contains(report.Missing, r.Scope) && s.renumbered(t.tree, r.Scope, t.rec) {
			roots = append(roots, r) // the next capture here drops it
		}
	}
	next := &record{head: head, copied: true, roots: roots, manifest: g.base}
	if head.Seq == 0 {
		next.roots = nil // the first published head must still be a first sync
	}
	j := &journal{tree: t.tree, kept: fmt.Sprintf("%s-%s-%d", time.Now().UTC().Format(keptStamp),
		t.tree, head.Seq)}
	for _, p := range todo {
		if len(p.ops) > 0 {
			j.roots = append(j.roots, journalRoot{p.Scope, p.dir, p.ops})
		}
	}
	if len(j.roots) == 0 {
		if err := s.settle(t, next); err != nil {
			return report, err
		}
		report.Seq = head.Seq
		return report, nil
	}
	if err := s.stage(ctx, todo, j); err != nil {
		s.unstage(j)
		return report, err
	}
	if err := s.commit(t, next, j); err != nil {
		s.unstage(j)
		return report, err
	}
	if err := s.finish(t, j, report); err != nil {
		return report, err
	}
	report.Seq = head.Seq
	return report, nil
}

// stageDir returns this master's own folder for a tree, because masters may share a file system.
func (s *Store) stageDir(tree Tree) string {
	self := sumOf([]byte(s.peers.Self()))
	return StagingDir + "/" + tree.String() + "-" + self.String()[:12]
}

// NoRoomError says that a file system is too full for an install. Nothing was changed.
type NoRoomError struct {
	Dir        string
	Need, Have int64 // bytes
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("no room for the new contents of %s: %d bytes needed, %d free; nothing was changed there; make room and sync again", e.Dir, e.Need, e.Have)
}

// stage copies new contents into the roots' own file systems, and onto stable storage.
func (s *Store) stage(ctx context.Context, todo []prepared, j *journal) error {
	need := make(map[uint64]int64) // by file system
	for _, p := range todo {
		if len(p.ops) == 0 {
			continue
		}
		if err := os.MkdirAll(p.dir, 0o755); err != nil {
			return fmt.Errorf("make root: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Stat(p.dir, &st); err != nil {
			return fmt.Errorf("stat root %s: %w", p.dir, err)
		}
		dev := uint64(st.Dev) //nolint:unconvert // by CPU
		need[dev] += p.need
		free, err := s.opts.room(p.dir)
		if err != nil {
			return err
		}
		if need[dev] > 0 && uint64(need[dev]) > free {
			return &NoRoomError{Dir: p.dir, Need: need[dev], Have: int64(min(free, 1<<62))}
		}
	}
	for _, r := range j.roots {
		if err := s.stageRoot(ctx, r, s.stageDir(j.tree)); err != nil {
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				err = fmt.Errorf("no room for the new contents of %s; nothing was changed there; make room and sync again: %w", r.dir, err)
			}
			return err
		}
	}
	return s.fault("staged")
}

func (s *Store) stageRoot(ctx context.Context, r journalRoot, dir string) error {
	root, err := openDir(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.mkdirAll(StagingDir, 0o700); err != nil {
		return err
	}
	if err := root.removeAll(dir); err != nil {
		return err
	}
	if err := root.mkdir(dir, 0o700); err != nil {
		return err
	}
	stage, err := root.sub(dir)
	if err != nil {
		return err
	}
	defer stage.Close()
	buf := make([]byte, pieceSize)
	for i := range r.ops {
		o := &r.ops[i]
		if o.kind != opPut {
			continue
		}
		if err := s.fault("stage"); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		switch o.item.Kind {
		case Link:
			err = stage.symlink(o.item.Target, strconv.Itoa(i))
		case RootLink:
			err = stage.symlink(filepath.Clean(r.dir)+o.item.Target, strconv.Itoa(i))
		default:
			err = s.stageFile(stage, strconv.Itoa(i), &o.item, buf)
		}
		if err != nil {
			return fmt.Errorf("stage %q: %w", o.path, err)
		}
	}
	return root.flush()
}

func (s *Store) stageFile(stage *rootDir, name string, it *Item, buf []byte) error {
	f, err := stage.create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if it.Size > 0 {
		blob, err := s.blobs.open(it.Sum)
		if err != nil {
			return err
		}
		defer blob.Close()
		h := sha256.New()
		n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(f, h)},
			struct{ io.Reader }{blob}, buf)
		if err != nil {
			return err
		}
		if n != it.Size || Sum(h.Sum(nil)) != it.Sum {
			s.blobs.drop(it.Sum)
			return fmt.Errorf("blob %s: %w", it.Sum, errDamaged)
		}
	}
	return f.Chmod(fs.FileMode(it.Mode))
}

// unstage removes staged files that are not used.
func (s *Store) unstage(j *journal) {
	for _, r := range j.roots {
		if err := s.clean(r.dir, j.tree); err != nil {
			s.log.Warn("staged files not removed; the next sync does it", "path", r.dir, "err", err)
		}
	}
}

// clean removes this master's staging folder and old kept folders from a root.
func (s *Store) clean(dir string, tree Tree) error {
	root, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.removeAll(s.stageDir(tree)); err != nil {
		return err
	}
	kept := StagingDir + "/" + keptDir
	names, err := root.names(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	left := len(names)
	for _, name := range names {
		at, err := time.Parse(keptStamp, name[:min(len(name), len(keptStamp))])
		if err == nil && time.Since(at) > s.opts.KeepAside {
			if err := root.removeAll(kept + "/" + name); err != nil {
				return err
			}
			left--
		}
	}
	if left == 0 {
		_ = root.rmdir(kept)
		_ = root.rmdir(StagingDir) // another master's files may be in it
	}
	return nil
}

func (s *Store) recordFile(t Tree) string  { return filepath.Join(s.dir, t.String()+".installed") }
func (s *Store) nextFile(t Tree) string    { return filepath.Join(s.dir, t.String()+".next") }
func (s *Store) journalFile(t Tree) string { return filepath.Join(s.dir, t.String()+".journal") }

// commit puts the journal, and the record that is valid once the journal is done, on stable
// storage. From then on the install will complete.
func (s *Store) commit(t *treeState, next *record, j *journal) error {
	if err := durable.WriteFile(s.nextFile(t.tree), next.encode()); err != nil {
		return err
	}
	if err := s.fault("next"); err != nil {
		return err
	}
	if err := durable.WriteFile(s.journalFile(t.tree), j.encode()); err != nil {
		// The journal may exist despite the error, and must not without the staged files.
		return errors.Join(err, removeFile(s.journalFile(t.tree)))
	}
	return nil
}

// finish does the steps of the journal from the beginning. Repeating finished steps does no harm.
// Once the record is in force, all of them are done.
func (s *Store) finish(t *treeState, j *journal, report *Report) error {
	if err := s.fault("journal"); err != nil {
		return err
	}
	todo := j.roots
	if _, err := os.Lstat(s.nextFile(t.tree)); errors.Is(err, fs.ErrNotExist) {
		todo = nil
	}
	for _, r := range todo {
		if err := s.finishRoot(r, j, report); err != nil {
			return fmt.Errorf("install into %s: %w; it goes on once that is repaired",
				r.dir, err)
		}
	}
	if err := s.fault("applied"); err != nil {
		return err
	}
	if err := os.Rename(s.nextFile(t.tree), s.recordFile(t.tree)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("install: %w", err)
	}
	if err := durable.SyncDir(s.dir); err != nil {
		return err
	}
	rec, err := readRecord(s.recordFile(t.tree), t.tree)
	if err != nil {
		return err
	}
	if err := s.fault("recorded"); err != nil {
		return err
	}
	if err := removeFile(s.journalFile(t.tree)); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	t.setRecord(rec)
	s.unstage(j)
	s.dropEmpty(j, rec)
	if s.opts.OnInstalled != nil {
		s.opts.OnInstalled(t.tree)
	}
	return nil
}

// dropEmpty removes the folders of environments of "__env__" that an install has emptied.
func (s *Store) dropEmpty(j *journal, rec *record) {
	for _, r := range j.roots {
		dir, envs, _ := s.place(j.tree, r.Scope)
		items, ok := rec.manifest.Root(r.Scope)
		if !ok || len(items) > 0 || envs == "" || dir != r.dir {
			continue
		}
		for at := dir; len(at) > len(envs); at = filepath.Dir(at) {
			if unix.Rmdir(at) != nil {
				break // it holds something else, or must stay for another reason
			}
		}
	}
}

func (s *Store) finishRoot(r journalRoot, j *journal, report *Report) error {
	root, err := openDir(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	stage, err := root.sub(s.stageDir(j.tree))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the staged files are missing (%s): mount its file system, or if somebody deleted them, remove %s to have all installed anew", s.stageDir(j.tree), s.journalFile(j.tree))
	}
	if err != nil {
		return err
	}
	defer stage.Close()
	a := &applier{root: root, stage: stage, kept: j.kept, report: report, scope: r.Scope,
		fault: s.fault}
	defer a.close()
	before := report.Kept
	if err := a.all(r.ops); err != nil {
		return err
	}
	if report.Kept > before {
		report.KeptIn = append(report.KeptIn, filepath.Join(r.dir, StagingDir, keptDir, j.kept))
	}
	return root.flush()
}

// settle records a head that needed no steps.
func (s *Store) settle(t *treeState, next *record) error {
	if err := durable.WriteFile(s.recordFile(t.tree), next.encode()); err != nil {
		return err
	}
	t.setRecord(next)
	return nil
}

// replay finishes an interrupted install. The caller holds t.mu.
func (s *Store) replay(t *treeState) error {
	b, err := os.ReadFile(s.journalFile(t.tree))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	j, err := decodeJournal(b)
	if err != nil {
		return fmt.Errorf("install of %s was interrupted: %w; to give it up, remove %s", t.tree, err,
			s.journalFile(t.tree))
	}
	report := &Report{Tree: t.tree, Node: s.peers.Self()}
	if err := s.finish(t, j, report); err != nil {
		return err
	}
	s.log.Info("interrupted install finished", "tree", t.tree.String(), "seq",
		t.rec.head.Seq, "drifted", report.Drifted)
	return nil
}

// rehearse reports what an install of a manifest would do, and changes nothing.
func (s *Store) rehearse(ctx context.Context, t *treeState, m *Manifest, force bool) (*Report,
	error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.foresee(ctx, t, m, force)
}

// foresee is rehearse for a caller that holds t.mu.
func (s *Store) foresee(ctx context.Context, t *treeState, m *Manifest, force bool) (*Report, error) {
	report := &Report{Tree: t.tree, Node: s.peers.Self(), Seq: t.rec.head.Seq}
	_, _, err := s.prepare(ctx, t.rec, m, force, report)
	return report, err
}
