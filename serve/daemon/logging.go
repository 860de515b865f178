package daemon

import (
	"errors"
	"fmt"
	"os"

	"clustermaster/config"
	"clustermaster/config/saltlog"
)

// logging holds the outputs of the daemon's log: standard error or the journal, and log_file.
type logging struct{ handler *saltlog.Handler }

func openLogging(o *config.Options) (*logging, error) {
	l := &logging{handler: saltlog.New()}
	return l, l.use(o)
}

// use puts the options in force. On an error the previous outputs stay.
func (l *logging) use(o *config.Options) error {
	use, err := l.prepare(o)
	if err == nil {
		use()
	}
	return err
}

// prepare opens the outputs of other options; use, which must follow unless there is an error, puts
// them in the place of the previous ones.
func (l *logging) prepare(o *config.Options) (use func(), err error) {
	console, err := outputOf(o, saltlog.Stream(os.Stderr), o.LogLevel, o.LogFmtConsole,
		o.LogDatefmt)
	if err != nil {
		return nil, err
	}
	if journal, ok := saltlog.Journal(); ok && o.LogFmtConsole == saltlog.FormatConsole {
		console.To, console.Layout = journal, nil
	}
	outs := []saltlog.Output{console}
	file, err := openLogFile(o)
	if err != nil {
		return nil, err
	}
	if file != nil {
		out, err := outputOf(o, file, o.LogLevelLogfile, o.LogFmtLogfile, o.LogDatefmtLogfile)
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		outs = append(outs, out)
	}
	return func() { l.handler.Replace(outs...) }, nil
}

// close ends all outputs, which then have what was logged.
func (l *logging) close() { l.handler.Replace() }

type logFile interface {
	saltlog.Sink
	Close() error
}

// openLogFile opens log_file; nil if it is empty.
func openLogFile(o *config.Options) (logFile, error) {
	switch {
	case o.LogFile == "":
		return nil, nil
	case saltlog.IsSyslog(o.LogFile):
		return saltlog.OpenSyslog(o.LogFile)
	}
	return saltlog.OpenFile(o.LogFile, int64(o.LogRotateMaxBytes), o.LogRotateBackups)
}

func outputOf(o *config.Options, to saltlog.Sink, level, format, dates string) (saltlog.Output,
	error) {
	out := saltlog.Output{To: to}
	var err error
	if out.Level, err = saltlog.ParseLevel(level); err != nil {
		return out, err
	}
	if out.Levels, err = saltlog.ParseLevels(o.GranularLevels()); err != nil {
		return out, fmt.Errorf("log_granular_levels: %w", err)
	}
	out.Layout, err = saltlog.NewLayout(format, dates)
	return out, err
}
