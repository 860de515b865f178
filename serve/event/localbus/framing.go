package localbus

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A framing is how a listener's release separates frames.
type framing int

const (
	streamed framing = iota // one after the other: 3007, 3008, and the first of 3006
	prefixed                // each after its length: the later ones of 3006
)

const (
	maxMaps   = 4 << 20 // bytes to read of a process's list of mapped files
	maxSource = 1 << 20 // bytes to read of a file of Salt's
)

// framingOf guesses the framing of the Salt release that process pid runs. A listener sends nothing
// that shows its release, and sockets, names and options are the same in all, so this looks at the
// process. Python has mapped libraries from the folder of its packages, which also has Salt's
// sources: those of 3006 have their own subscriber, which reads lengths if its module uses struct.
// Where this can't be seen (another container, another user, no Salt) the answer is what most
// releases read.
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

// packageFolders returns the folders of Python packages from which a process has mapped files, or,
// if that can't be read, those beside its program.
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

// besideProgram guesses from the command line, which all users may read: the first word of a Python
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
	// fails only for invalid patterns
	dirs, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", "*-packages"))
	return dirs
}

// readSome reads at most the first bytes of a file.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
