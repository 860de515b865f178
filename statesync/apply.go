package statesync

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// applier does the steps of one root. It touches nothing that changed after the steps were planned.
type applier struct {
	root   *rootDir
	stage  *rootDir // staged contents, named by the number of the step
	kept   string   // folder of StagingDir for items kept aside
	aside  *rootDir // kept, once it is made
	report *Report
	scope  Scope
	fault  func(step string) error
}

func (a *applier) close() {
	if a.aside != nil {
		a.aside.Close()
	}
}

// errChanged says that an item has changed since the steps were planned.
var errChanged = errors.New("changed meanwhile")

// all does the steps in order. An error that is not about one item stops it; the journal remains,
// so that a later run can continue.
func (a *applier) all(ops []op) error {
	for i := range ops {
		if err := a.fault("step"); err != nil {
			return err
		}
		err := a.step(i, &ops[i])
		switch {
		case err == nil:
		case errors.Is(err, errChanged):
			a.report.addDrift(Drift{Scope: a.scope, Path: ops[i].path, What: DriftEdited})
		case blocked(err):
			a.report.addDrift(Drift{Scope: a.scope, Path: ops[i].path, What: DriftBlocked})
		default:
			return err
		}
	}
	return nil
}

// blocked reports whether something stands in the way that did not when the steps were planned, or
// the item must not be changed.
func blocked(err error) bool {
	for _, e := range []error{unix.ENOTDIR, unix.ELOOP, unix.EISDIR, unix.ENOTEMPTY, unix.EEXIST,
		unix.ENOENT, unix.EACCES, unix.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (a *applier) step(i int, o *op) error {
	now, err := a.root.lstat(o.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch o.kind {
	case opPut:
		return a.put(strconv.Itoa(i), o, now)
	case opClear, opDelete:
		return a.remove(o, now)
	case opUnmake, opRmdir:
		if now.kind != Dir {
			return nil
		}
		if err := a.root.rmdir(o.path); !errors.Is(err, unix.ENOTEMPTY) &&
			!errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil // its contents are drift, and are listed as such
	case opMkdir:
		if now.kind == Dir {
			return nil
		}
		return a.root.mkdir(o.path, 0o700)
	case opMode:
		if now.kind != o.item.Kind {
			return errChanged
		}
		return a.root.chmod(o.path, o.item.Mode)
	}
	return fmt.Errorf("step %d of kind %d: %w", i, o.kind, ErrCorrupt)
}

// unchanged compares without the inode's change time, which a second name changes.
func unchanged(now, old stat) bool {
	return now.kind == old.kind && (now.kind == 0 || now.ino == old.ino && now.size == old.size &&
		now.mtime == old.mtime)
}

func (a *applier) put(staged string, o *op, now stat) error {
	if _, err := a.stage.lstat(staged); errors.Is(err, fs.ErrNotExist) {
		return nil // done before this master stopped
	}
	if !unchanged(now, o.old) && !a.setAside(o, now) {
		if a.already(o, now) {
			return nil
		}
		return errChanged
	}
	if o.keep && now.kind != 0 {
		if err := a.keep(o.path, false); err != nil {
			return err
		}
	}
	return a.stage.moveTo(staged, a.root, o.path)
}

// setAside reports whether this install moved the old item away before this master stopped.
func (a *applier) setAside(o *op, now stat) bool {
	if now.kind != 0 || !o.keep || a.openAside() != nil {
		return false
	}
	_, err := a.aside.lstat(o.path)
	return err == nil
}

// already reports whether the item is what it should become; two roots may lead to one folder.
func (a *applier) already(o *op, now stat) bool {
	if now.kind == Link && o.item.Kind == Link {
		target, err := a.root.readlink(o.path)
		return err == nil && target == o.item.Target
	}
	if now.kind != File || o.item.Kind != File || now.size != o.item.Size ||
		now.mode != o.item.Mode {
		return false
	}
	f, err := a.root.open(o.path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && Sum(h.Sum(nil)) == o.item.Sum
}

func (a *applier) remove(o *op, now stat) error {
	if now.kind == 0 {
		return nil
	}
	if !unchanged(now, o.old) {
		return errChanged
	}
	if o.keep {
		return a.keep(o.path, true)
	}
	return a.root.unlink(o.path)
}

func (a *applier) openAside() error {
	if a.aside != nil {
		return nil
	}
	top := StagingDir + "/" + keptDir + "/" + a.kept
	if err := a.root.mkdirAll(top, 0o700); err != nil {
		return err
	}
	var err error
	a.aside, err = a.root.sub(top)
	return err
}

// keep puts an item aside: it moves it away, or gives it a second name until it is replaced, so
// that it is never missing.
func (a *applier) keep(path string, away bool) error {
	if err := a.openAside(); err != nil {
		return err
	}
	if dir := parentOf(path); dir != "" {
		if err := a.aside.mkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if !away {
		err := a.root.linkTo(path, a.aside, path)
		if err == nil || errors.Is(err, fs.ErrExist) {
			a.report.Kept++
			return nil
		}
	}
	if err := a.root.moveTo(path, a.aside, path); err != nil {
		return err
	}
	a.report.Kept++
	return nil
}
