package cli

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"time"

	"clustermaster/config"
	"clustermaster/salt/output"
	"clustermaster/salt/saltpython"
	"clustermaster/value"
)

// outputterTime bounds the start of an interpreter and one result.
const outputterTime = 30 * time.Second

// maxOutput bounds the text of one result, in bytes.
const maxOutput = 64 << 20

//go:embed outputters.py
var outputtersProgram string

var plainName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)

// outputters runs the outputters of Salt and of the site in a Python process, which ends with the
// command. The first result that needs an outputter written in Python starts it.
type outputters struct {
	conf *config.Options
	opts value.Map // of the command

	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *os.File
	stderr io.Writer // of the command
	err    error     // why it failed; no further result is tried
}

// text formats a result. known is false for an unknown outputter, or
// without a Python that has Salt.
func (o *outputters) text(name string, r output.Result) (text string, known bool, err error) {
	if !plainName.MatchString(name) || o.err != nil {
		return "", false, o.err
	}
	if o.cmd == nil {
		python, err := saltpython.Find(o.conf.PythonHost)
		if err != nil {
			return "", false, nil // as for an unknown outputter
		}
		if o.err = o.start(python); o.err != nil {
			return "", false, o.err
		}
	}
	reply, err := o.ask(value.Map{{Key: "name", Value: name}, {Key: "value", Value: r.Value},
		{Key: "retcode", Value: int64(r.Retcode)}})
	if err != nil {
		o.err = fmt.Errorf("outputter %s: %w", name, err)
		return "", false, o.err
	}
	if _, unknown := reply.Get("unknown"); unknown {
		return "", false, nil
	}
	if failed := reply.String("error"); failed != "" {
		return "", true, fmt.Errorf("%s", failed) // the outputter's own text
	}
	return reply.String("text"), true, nil
}

func (o *outputters) start(python string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	o.cmd = exec.Command(python, "-c", outputtersProgram)
	o.cmd.Stdout, o.cmd.Stderr, o.cmd.ExtraFiles = o.stderr, o.stderr, []*os.File{write}
	if o.in, err = o.cmd.StdinPipe(); err == nil {
		err = o.cmd.Start()
	}
	write.Close()
	if err != nil {
		read.Close()
		return fmt.Errorf("run %s: %w", python, err)
	}
	o.out = read
	return o.send(value.Map{{Key: "conf_file", Value: o.conf.ConfFile},
		{Key: "opts", Value: o.opts}})
}

// close ends the process: nothing may hold the command's standard error when the command has ended.
func (o *outputters) close() {
	if o.cmd == nil || o.cmd.Process == nil {
		return
	}
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
	o.out.Close()
}

func (o *outputters) send(m value.Map) error {
	raw, err := value.PackNew(m)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	_, err = o.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
	return err
}

func (o *outputters) ask(m value.Map) (value.Map, error) {
	timer := time.AfterFunc(outputterTime, func() { _ = o.cmd.Process.Kill() })
	defer timer.Stop()
	if err := o.send(m); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(o.out, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxOutput {
		return nil, fmt.Errorf("a text of %d bytes is too long", n)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(o.out, raw); err != nil {
		return nil, err
	}
	return value.UnpackMap(raw)
}

// outputterOptions are the options of a command that outputters in Python read.
func outputterOptions(o output.Options) value.Map {
	m := value.Map{
		{Key: "color", Value: o.Color}, {Key: "strip_colors", Value: o.StripColors},
		{Key: "static", Value: o.Static}, {Key: "fun", Value: o.Fun},
		{Key: "state_output", Value: o.StateOutput}, {Key: "state_verbose", Value: o.StateVerbose},
		{Key: "output", Value: o.Output},
	}
	switch {
	case o.Indent.Pretty:
		m = append(m, value.Pair{Key: "output_indent", Value: "pretty"})
	case o.Indent.Set && o.Indent.N >= 0:
		m = append(m, value.Pair{Key: "output_indent", Value: int64(o.Indent.N)})
	case o.Indent.Set:
		m = append(m, value.Pair{Key: "output_indent", Value: nil})
	}
	return m
}
