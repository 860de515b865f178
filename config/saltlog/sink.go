package saltlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"log/syslog"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
)

// Stream is a sink that writes lines to w.
func Stream(w io.Writer) Sink { return stream{w} }

type stream struct{ w io.Writer }

func (s stream) Write(_ *Record, line []byte) error {
	_, err := s.w.Write(line)
	return err
}

// lookEach is the interval between checks of a file's name: lines that come sooner after a rename
// go to the old file.
const lookEach = time.Second

// File is a log file with mode 0640. It reopens its path when that leads to another file, so that
// logrotate needs no signal.
type File struct {
	path     string
	maxBytes int64 // 0: never rotate
	backups  int   // number of old files PATH.1 and so on to keep
	f        *os.File
	size     int64
	looked   time.Time
}

// OpenFile opens path for appending and makes its folder. With maxBytes above 0 a line that would
// exceed it begins a new file, and backups old ones are kept as path.1, path.2 and so on, as
// Python's RotatingFileHandler does; also as there, with backups 0 the file only grows.
func OpenFile(path string, maxBytes int64, backups int) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	f := &File{path: path, maxBytes: maxBytes, backups: backups}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return fmt.Errorf("open log file: %w", err)
	}
	if f.f != nil {
		f.f.Close()
	}
	f.f, f.size, f.looked = file, st.Size(), time.Now()
	return nil
}

func (f *File) Write(_ *Record, line []byte) error {
	if time.Since(f.looked) >= lookEach && f.moved() {
		if err := f.open(); err != nil {
			return err // the old file stays open; the next line tries again
		}
	}
	if f.maxBytes > 0 && f.backups > 0 && f.size > 0 && f.size+int64(len(line)) > f.maxBytes {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	n, err := f.f.Write(line)
	f.size += int64(n)
	return err
}

// moved reports whether the path no longer leads to the open file.
func (f *File) moved() bool {
	f.looked = time.Now()
	there, err := os.Stat(f.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	open, err := f.f.Stat()
	return err == nil && !os.SameFile(there, open)
}

func (f *File) rotate() error {
	for n := f.backups; n > 0; n-- {
		from := f.path
		if n > 1 {
			from = fmt.Sprintf("%s.%d", f.path, n-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", f.path, n)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate log file: %w", err)
		}
	}
	return f.open()
}

// Close closes the file; the caller must write no more lines.
func (f *File) Close() error { return f.f.Close() }

// Syslog is a sink that sends lines to a syslog daemon.
type Syslog struct{ w *syslog.Writer }

// IsSyslog reports whether a value of log_file names a syslog daemon.
func IsSyslog(address string) bool {
	scheme, _, ok := strings.Cut(address, "://")
	return ok && (scheme == "file" || scheme == "udp" || scheme == "tcp")
}

// OpenSyslog connects to an address of Salt's form: file:///dev/log, udp://host:port or
// tcp://host:port, each with an optional facility like /LOG_DAEMON at its end (LOG_USER without
// one).
func OpenSyslog(address string) (*Syslog, error) {
	network, to, facility, err := parseSyslog(address)
	if err != nil {
		return nil, err
	}
	w, err := syslog.Dial(network, to, facility|syslog.LOG_INFO, "salt-master")
	if err != nil {
		return nil, fmt.Errorf("log to %s: %w; start the syslog daemon or correct log_file",
			address, err)
	}
	return &Syslog{w}, nil
}

// CheckSyslog returns an error for an invalid address, without connecting.
func CheckSyslog(address string) error {
	_, _, _, err := parseSyslog(address)
	return err
}

func parseSyslog(address string) (network, to string, facility syslog.Priority, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", "", 0,
			fmt.Errorf("%q is not an address of a syslog daemon: write file:///dev/log, udp://host:514 or tcp://host:514", address)
	}
	facility = syslog.LOG_USER
	dir, last := path.Split(u.Path)
	if name := strings.ToUpper(last); strings.HasPrefix(name, "LOG_") || u.Scheme != "file" &&
		last != "" {
		known, ok := facilities[name]
		if !ok {
			return "", "", 0,
				fmt.Errorf("the syslog facility %q is not known; use one like LOG_USER or LOG_DAEMON", name)
		}
		facility, u.Path = known, path.Clean(dir)
	}
	if u.Scheme == "file" {
		return "unixgram", u.Path, facility, nil
	}
	port := u.Port()
	if port == "" {
		port = "514"
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), facility, nil
}

var facilities = map[string]syslog.Priority{
	"LOG_KERN": syslog.LOG_KERN, "LOG_USER": syslog.LOG_USER, "LOG_MAIL": syslog.LOG_MAIL,
	"LOG_DAEMON": syslog.LOG_DAEMON,
	"LOG_AUTH":   syslog.LOG_AUTH, "LOG_SYSLOG": syslog.LOG_SYSLOG, "LOG_LPR": syslog.LOG_LPR,
	"LOG_NEWS": syslog.LOG_NEWS,
	"LOG_UUCP": syslog.LOG_UUCP, "LOG_CRON": syslog.LOG_CRON, "LOG_AUTHPRIV": syslog.LOG_AUTHPRIV,
	"LOG_FTP":    syslog.LOG_FTP,
	"LOG_LOCAL0": syslog.LOG_LOCAL0, "LOG_LOCAL1": syslog.LOG_LOCAL1,
	"LOG_LOCAL2": syslog.LOG_LOCAL2, "LOG_LOCAL3": syslog.LOG_LOCAL3,
	"LOG_LOCAL4": syslog.LOG_LOCAL4, "LOG_LOCAL5": syslog.LOG_LOCAL5,
	"LOG_LOCAL6": syslog.LOG_LOCAL6, "LOG_LOCAL7": syslog.LOG_LOCAL7,
}

func (s *Syslog) Write(r *Record, line []byte) error {
	text := strings.TrimSuffix(string(line), "\n")
	switch {
	case r.Level >= LevelCritical:
		return s.w.Crit(text)
	case r.Level >= slog.LevelError:
		return s.w.Err(text)
	case r.Level >= slog.LevelWarn:
		return s.w.Warning(text)
	case r.Level >= slog.LevelInfo:
		return s.w.Info(text)
	}
	return s.w.Debug(text)
}

// Close ends the connection to the daemon.
func (s *Syslog) Close() error { return s.w.Close() }

// Journal returns the sink of systemd's journal, which keeps attributes as fields of their own
// (SALT_COMPONENT, CODE_FILE, and each attribute's key in capitals). ok is false unless standard
// error is connected to the journal.
func Journal() (sink Sink, ok bool) {
	connected, err := journal.StderrIsJournalStream()
	return journalSink{}, err == nil && connected
}

type journalSink struct{}

func (journalSink) Write(r *Record, _ []byte) error {
	priority := journal.PriDebug
	switch {
	case r.Level >= LevelCritical:
		priority = journal.PriCrit
	case r.Level >= slog.LevelError:
		priority = journal.PriErr
	case r.Level >= slog.LevelWarn:
		priority = journal.PriWarning
	case r.Level >= slog.LevelInfo:
		priority = journal.PriInfo
	}
	return journal.Send(r.Text+r.Attrs, priority, journalFields(r))
}

// journalFields are the fields besides message and priority. Their names are capitals, digits and
// underlines, as the journal requires.
func journalFields(r *Record) map[string]string {
	fields := map[string]string{"SYSLOG_IDENTIFIER": "salt-master", "SALT_COMPONENT": r.Component}
	if f := r.frame(); f.File != "" {
		fields["CODE_FILE"], fields["CODE_LINE"], fields["CODE_FUNC"] = f.File, fmt.Sprint(f.Line),
			f.Function
	}
	for _, a := range r.Fields {
		name := strings.Map(func(c rune) rune {
			switch {
			case c >= 'a' && c <= 'z':
				return c - 'a' + 'A'
			case c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
				return c
			}
			return '_'
		}, a.Key)
		fields["SALT_"+name] = a.Value.String()
	}
	return fields
}
