package localbus

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A framing is how a listener's release tells frames apart.
type framing int

const (
	streamed framing = iota // they follow on each other: 3007, 3008, and the first of 3006
	prefixed                // the length stands before each: the later ones of 3006
)

const (
	maxMaps   = 4 << 20 // bytes read of what a process has mapped
	maxSource = 1 << 20 // bytes read of a file of Salt's
)

// framingOf tells the framing of the Salt that process pid runs. A listener sends nothing by which
// its release could be told, and sockets, names and options are the same; so its process is looked
// at. Python has mapped libraries of the folder in which its packages lie, beside which Salt's
// sources are: those of 3006 have a subscriber of their own, which reads lengths if its module uses
// struct. Where nothing can be seen (another container, another user, no Salt) the answer is what
// most releases read.
func framingOf(pid int32) framing {
	if pid <= 0 {
		return streamed
	}
	proc := filepath.Join("/proc", strconv.Itoa(int(pid)))
	for _, dir := range packageFolders(proc) {
		salt := filepath.Join(proc, "root", dir, "salt")
		events, err := readSome(filepath.Join(salt, "utils", "event.py"), maxSource)
		if err != nil {
			continue
		}
		if !bytes.Contains(events, []byte("IPCMessageSubscriber")) {
			return streamed
		}
		ipc, err := readSome(filepath.Join(salt, "transport", "ipc.py"), maxSource)
		if err == nil && bytes.Contains(ipc, []byte("\nimport struct\n")) {
			return prefixed
		}
		return streamed
	}
	return streamed
}

// packageFolders are the folders of Python packages that a process has mapped files of, or, where
// that can't be read, those beside its program.
func packageFolders(proc string) []string {
	maps, err := readSome(filepath.Join(proc, "maps"), maxMaps)
	if err != nil {
		return besideProgram(proc)
	}
	var dirs []string
	seen := make(map[string]bool)
	for line := range strings.Lines(string(maps)) {
		_, path, found := strings.Cut(strings.TrimSuffix(line, "\n"), "/")
		if !found {
			continue
		}
		for _, name := range []string{"/site-packages/", "/dist-packages/"} {
			if dir, _, in := strings.Cut("/"+path, name); in && !seen[dir+name] {
				seen[dir+name] = true
				dirs = append(dirs, dir+name)
			}
		}
	}
	return dirs
}

// besideProgram guesses from the command line, which everybody may read: the first word of a Python
// program is its interpreter.
func besideProgram(proc string) []string {
	cmdline, err := readSome(filepath.Join(proc, "cmdline"), 4096)
	if err != nil {
		return nil
	}
	program, _, _ := strings.Cut(string(cmdline), "\x00")
	prefix := filepath.Dir(filepath.Dir(program))
	if !filepath.IsAbs(program) {
		return nil
	}
	// fails on patterns only
	dirs, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", "*-packages"))
	return dirs
}

// readSome reads the first bytes of a file of whatever length.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
