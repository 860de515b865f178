package saltlog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
)

// Salt's default formats (salt/_logging/impl.py).
const (
	FormatConsole  = "[%(levelname)-8s] %(message)s"
	FormatFile     = "%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d][%(levelname)-8s][%(process)d] %(message)s"
	DatesOfConsole = "%H:%M:%S"
	DatesOfFile    = "%Y-%m-%d %H:%M:%S"
)

// Console is the layout of Salt's console, with its defaults.
var Console = func() Layout {
	l, err := NewLayout(FormatConsole, DatesOfConsole)
	if err != nil {
		panic(err)
	}
	return l
}()

// FormatJSON, used as the format, gives one JSON object per line.
const FormatJSON = "json"

// NewLayout compiles a format of Python's logging (log_fmt_console, log_fmt_logfile), or the word
// json. dates is the strftime format of asctime. It returns an error for an unknown field, or for a
// conversion that the field does not support.
func NewLayout(format, dates string) (Layout, error) {
	if format == FormatJSON {
		return jsonLayout{}, nil
	}
	l := &pythonLayout{dates: dates}
	rest := format
	for rest != "" {
		at := strings.IndexByte(rest, '%')
		if at < 0 {
			l.parts = append(l.parts, part{text: rest})
			break
		}
		if at > 0 {
			l.parts = append(l.parts, part{text: rest[:at]})
		}
		rest = rest[at:]
		if strings.HasPrefix(rest, "%%") {
			l.parts, rest = append(l.parts, part{text: "%"}), rest[2:]
			continue
		}
		m := placeholder.FindStringSubmatch(rest)
		if m == nil {
			return nil,
				fmt.Errorf("%.20q is not a placeholder like %%(message)s; write %%%% for a percent sign", rest)
		}
		p, err := newPart(m[1], m[2], m[3])
		if err != nil {
			return nil, err
		}
		l.parts, rest = append(l.parts, p), rest[len(m[0]):]
	}
	return l, nil
}

var placeholder = regexp.MustCompile(`^%\(([a-zA-Z_]+)\)([-+ 0#]*[0-9]{0,4}(?:\.[0-9]{1,2})?)([sdif])`)

// pythonLayout is a compiled format of Python's logging.
type pythonLayout struct {
	parts []part
	dates string
}

// part is a text, or a field with the verb that prints it.
type part struct {
	text  string
	verb  string
	value func(l *pythonLayout, r *Record) any // string, int or float64
}

func newPart(name, flags, conversion string) (part, error) {
	value, ok := fieldsOfRecords[name]
	if !ok {
		return part{},
			fmt.Errorf("%%(%s) is not a field of log records; use asctime, created, filename, funcName, levelname, levelno, lineno, "+
				"message, module, msecs, name, pathname, process, processName, threadName, or Salt's bracket and color fields", name)
	}
	_, isText := value(&pythonLayout{}, &Record{}).(string)
	if isText && conversion != "s" {
		return part{}, fmt.Errorf("%%(%s)%s: the field is text; write %%(%s)s", name,
			conversion, name)
	}
	p := part{verb: "%" + flags + conversion, value: value}
	switch conversion {
	case "s":
		p.verb = "%" + strings.Trim(flags, "0+ #") + "v"
		if isText {
			p.verb = "%" + strings.TrimLeft(flags, "0+ #") + "s"
		}
	case "d", "i":
		p.verb, p.value = "%"+flags+"d", whole(value)
	case "f":
		p.value = fraction(value)
	}
	return p, nil
}

func whole(value func(*pythonLayout, *Record) any) func(*pythonLayout, *Record) any {
	return func(l *pythonLayout, r *Record) any {
		if f, ok := value(l, r).(float64); ok {
			return int(f)
		}
		return value(l, r)
	}
}

func fraction(value func(*pythonLayout, *Record) any) func(*pythonLayout, *Record) any {
	return func(l *pythonLayout, r *Record) any {
		if n, ok := value(l, r).(int); ok {
			return float64(n)
		}
		return value(l, r)
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// fieldsOfRecords are the attributes of Python's LogRecord and of Salt's (SaltLogRecord,
// SaltColorLogRecord).
var fieldsOfRecords = map[string]func(l *pythonLayout, r *Record) any{
	"asctime": func(l *pythonLayout,
		r *Record) any {
		return strftime.Format(l.dates, r.Time)
	},
	"created":   func(_ *pythonLayout, r *Record) any { return seconds(r.Time) },
	"filename":  func(_ *pythonLayout, r *Record) any { return filepath.Base(r.frame().File) },
	"funcName":  func(_ *pythonLayout, r *Record) any { return r.frame().Function },
	"jid":       func(*pythonLayout, *Record) any { return "" },
	"levelname": func(_ *pythonLayout, r *Record) any { return levelName(r.Level) },
	"levelno":   func(_ *pythonLayout, r *Record) any { return pythonLevel(r.Level) },
	"lineno":    func(_ *pythonLayout, r *Record) any { return r.frame().Line },
	"message":   func(_ *pythonLayout, r *Record) any { return r.Text + r.Attrs },
	"minion_id": func(*pythonLayout, *Record) any { return "" },
	"module": func(_ *pythonLayout,
		r *Record) any {
		return strings.TrimSuffix(filepath.Base(r.frame().File), ".go")
	},
	"msecs": func(_ *pythonLayout,
		r *Record) any {
		return float64(r.Time.Nanosecond() / int(time.Millisecond))
	},
	"name":        func(_ *pythonLayout, r *Record) any { return r.Name() },
	"pathname":    func(_ *pythonLayout, r *Record) any { return r.frame().File },
	"process":     func(*pythonLayout, *Record) any { return os.Getpid() },
	"processName": func(*pythonLayout, *Record) any { return "MainProcess" },
	"thread":      func(*pythonLayout, *Record) any { return os.Getpid() },
	"threadName":  func(*pythonLayout, *Record) any { return "MainThread" },
	"bracketlevel": func(_ *pythonLayout,
		r *Record) any {
		return fmt.Sprintf("[%-8s]", levelName(r.Level))
	},
	"bracketname": func(_ *pythonLayout,
		r *Record) any {
		return fmt.Sprintf("[%-17s]", r.Name())
	},
	"bracketprocess": func(*pythonLayout, *Record) any { return fmt.Sprintf("[%5d]", os.Getpid()) },
	"colorlevel": func(_ *pythonLayout, r *Record) any {
		return colored(colors(r.Level).level, fmt.Sprintf("[%-8s]", levelName(r.Level)))
	},
	"colormsg": func(_ *pythonLayout, r *Record) any {
		return colored(colors(r.Level).message,
			r.Text+r.Attrs)
	},
	"colorname": func(_ *pythonLayout,
		r *Record) any {
		return colored("1;32", fmt.Sprintf("[%-17s]", r.Name()))
	},
	"colorprocess": func(*pythonLayout, *Record) any {
		return colored("1;34",
			fmt.Sprintf("[%5d]", os.Getpid()))
	},
}

// colored puts text between an ANSI colour and the reset.
func colored(code, text string) string { return "\x1b[0;" + code + "m" + text + "\x1b[0m" }

// colorsOfLevel are ANSI codes of a level's name and of its message.
type colorsOfLevel struct{ level, message string }

func colors(l slog.Level) colorsOfLevel {
	switch {
	case l >= LevelCritical:
		return colorsOfLevel{"1;31", "1;31"}
	case l >= slog.LevelError:
		return colorsOfLevel{"1;31", "31"}
	case l >= slog.LevelWarn:
		return colorsOfLevel{"1;33", "33"}
	case l >= slog.LevelInfo:
		return colorsOfLevel{"1;32", "32"}
	case l >= slog.LevelDebug:
		return colorsOfLevel{"1;36", "36"}
	}
	return colorsOfLevel{"1;35", "35"}
}

// pythonLevel is the number that Python's logging gives the level.
func pythonLevel(l slog.Level) int {
	switch levelName(l) {
	case "CRITICAL":
		return 50
	case "ERROR":
		return 40
	case "WARNING":
		return 30
	case "INFO":
		return 20
	case "DEBUG":
		return 10
	}
	return 5
}

func (l *pythonLayout) Append(b []byte, r *Record) []byte {
	for _, p := range l.parts {
		if p.value == nil {
			b = append(b, p.text...)
			continue
		}
		b = fmt.Appendf(b, p.verb, p.value(l, r))
	}
	return append(b, '\n')
}

// jsonLayout writes one object per line: time (RFC 3339, UTC), level, logger, message, pid, source,
// and the attributes below "fields".
type jsonLayout struct{}

func (jsonLayout) Append(b []byte, r *Record) []byte {
	line := struct {
		Time    time.Time      `json:"time"`
		Level   string         `json:"level"`
		Logger  string         `json:"logger"`
		Message string         `json:"message"`
		PID     int            `json:"pid"`
		Source  string         `json:"source,omitempty"`
		Fields  map[string]any `json:"fields,omitempty"`
	}{Time: r.Time.UTC(), Level: levelName(r.Level), Logger: r.Name(), Message: r.Text,
		PID: os.Getpid()}
	if f := r.frame(); f.File != "" {
		line.Source = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
	}
	for _, a := range r.Fields {
		if line.Fields == nil {
			line.Fields = make(map[string]any, len(r.Fields))
		}
		switch a.Value.Kind() {
		case slog.KindBool, slog.KindInt64, slog.KindUint64:
			line.Fields[a.Key] = a.Value.Any()
		default:
			line.Fields[a.Key] = a.Value.String()
		}
	}
	text, err := json.Marshal(line)
	if err != nil { // no value above can fail
		text = []byte(`{}`)
	}
	return append(append(b, text...), '\n')
}
