package statemodules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// commandStates is the module cmd (salt/states/cmd.py): commands on the master's machine, run as
// the master's user. Their time and output have the bounds of the function cmd.run_all.
func commandStates(d Deps) orchestrate.Table {
	c := commander{d}
	waiting := []function.Param{
		need("name"), opt("cwd", nil), opt("root", nil), opt("runas", nil), opt("shell", nil),
		opt("env", []any{}), opt("stateful", false), opt("output_loglevel", "debug"),
		opt("hide_output", false),
		opt("use_vt", false), opt("success_retcodes", nil), opt("success_stdout", nil),
		opt("success_stderr", nil),
	}
	wait := orchestrate.Function{Params: waiting, VarKwargs: true, Run: idle}
	script := []function.Param{
		need("name"), opt("source", nil), opt("template", nil), opt("cwd", nil), opt("runas", nil),
		opt("password", nil), opt("shell", nil), opt("env", nil), opt("stateful", false),
		opt("timeout", nil),
		opt("use_vt", false), opt("output_loglevel", "debug"), opt("hide_output", false),
		opt("defaults", nil), opt("context", nil), opt("success_retcodes", nil),
		opt("success_stdout", nil), opt("success_stderr", nil),
	}
	return orchestrate.Table{
		"cmd.wait": wait, "cmd.watch": wait,
		"cmd.wait_script": {Params: []function.Param{
			need("name"), opt("source", nil), opt("template", nil), opt("cwd", nil),
			opt("runas", nil), opt("shell", nil), opt("env", nil), opt("stateful", false),
			opt("use_vt", false),
			opt("output_loglevel", "debug"), opt("hide_output", false),
			opt("success_retcodes", nil), opt("success_stdout", nil), opt("success_stderr", nil),
		}, VarKwargs: true, Run: idle},
		"cmd.run": {Params: []function.Param{
			need("name"), opt("cwd", nil), opt("root", nil), opt("runas", nil),
			opt("password", nil), opt("shell", nil), opt("env", nil), opt("prepend_path", nil),
			opt("stateful", false),
			opt("output_loglevel", "debug"), opt("hide_output", false), opt("timeout", nil),
			opt("ignore_timeout", false), opt("use_vt", false), opt("success_retcodes", nil),
			opt("success_stdout", nil), opt("success_stderr", nil),
		}, VarKwargs: true, Run: c.run},
		"cmd.script":    {Params: script, VarKwargs: true, Run: c.script},
		"cmd.mod_watch": {Params: []function.Param{need("name")}, VarKwargs: true, Run: c.watch},
	}
}

type commander struct{ d Deps }

// passedOn are the parameters that go on to cmd.run_all if the state has them.
var passedOn = []string{
	"cwd", "runas", "env", "prepend_path", "output_loglevel", "hide_output", "timeout",
	"success_retcodes", "success_stdout", "success_stderr",
	"stdin", "umask", "clean_env", "rstrip", "ignore_retcode", "reset_system_locale", "group",
}

func (c commander) run(ctx context.Context, s orchestrate.Call) (value.Map, error) {
	name, stateful, tried := tryName(s)
	ret := orchestrate.Return(s.Name, nil, false, "")
	if env := s.Arg("env"); !isEnv(env) {
		return ret.Set("comment", "Invalidly-formatted 'env' parameter. See documentation."), nil
	}
	if s.Test && !tried {
		ret = orchestrate.Return(name, value.Map{{Key: "cmd", Value: name}}, nil,
			fmt.Sprintf("Command \"%s\" would have been executed", name))
		return reinterpreted(ret, stateful)
	}
	if refusal := unable(s); refusal != "" {
		return ret.Set("comment", refusal), nil
	}
	done, err := c.command(ctx, s, name, true)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return ret.Set("comment", reason(err)), nil
	}
	code, _ := done.Get("retcode")
	result := code == int64(0)
	if value.Truth(s.Arg("ignore_timeout")) && code == int64(1) &&
		strings.Contains(done.String("stdout"), "Timed out after") {
		done, result = done.Set("retcode", int64(0)), true
	}
	return c.ended(s, orchestrate.Return(s.Name, done, result,
		fmt.Sprintf("Command \"%s\" run", name)), stateful, code)
}

// script runs a file from file_roots.
func (c commander) script(ctx context.Context, s orchestrate.Call) (value.Map, error) {
	name, stateful, tried := tryName(s)
	ret := orchestrate.Return(name, nil, false, "")
	if env := s.Arg("env"); !isEnv(env) {
		return ret.Set("comment", "Invalidly-formatted 'env' parameter. See documentation."), nil
	}
	vars := value.Map{}
	for _, key := range []string{"defaults", "context"} {
		m, ok := s.Arg(key).(value.Map)
		if !ok && value.Truth(s.Arg(key)) {
			return ret.Set("comment",
				fmt.Sprintf("Invalidly-formatted '%s' parameter. Must be formed as a dict.",
					key)), nil
		}
		for _, p := range m {
			vars = vars.Set(value.Str(p.Key), p.Value)
		}
	}
	if s.Test && !tried {
		return reinterpreted(orchestrate.Return(name, nil, nil,
			fmt.Sprintf("Command '%s' would have been executed", name)), stateful)
	}
	if refusal := unable(s); refusal != "" {
		return ret.Set("comment", refusal), nil
	}
	source := name
	if v := s.Arg("source"); v != nil {
		source = value.Str(v)
	}
	words, err := scriptArguments(s.Arg("args"), name)
	if err != nil {
		return nil, err
	}
	text, found, err := c.source(ctx, s, source, vars)
	if err != nil {
		return ret.Set("comment", reason(err)), nil
	}
	if !found {
		none := value.Map{{Key: "pid", Value: int64(0)}, {Key: "retcode", Value: int64(1)},
			{Key: "stdout", Value: ""}, {Key: "stderr", Value: ""},
			{Key: "cache_error", Value: true}}
		return orchestrate.Return(name, none, false,
			fmt.Sprintf("Unable to cache script %s from saltenv '%s'", source, s.Env)), nil
	}
	dir, err := os.MkdirTemp("", "clustermaster-script-")
	if err != nil {
		return nil, fmt.Errorf("write script %s: %w", source, err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "script"+filepath.Ext(source))
	if err := os.WriteFile(path, text, 0o500); err != nil {
		return nil, fmt.Errorf("write script %s: %w", source, err)
	}
	if who := s.Arg("runas"); value.Truth(who) {
		if err := modules.GiveTo(value.Str(who), dir, path); err != nil {
			return ret.Set("comment", err.Error()), nil
		}
	}
	done, err := c.command(ctx, s, append([]any{path}, words...), false)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return ret.Set("comment", reason(err)), nil
	}
	code, _ := done.Get("retcode")
	return c.ended(s, orchestrate.Return(name, done, code == int64(0),
		fmt.Sprintf("Command '%s' run", name)), stateful, code)
}

// watch runs the command of a state when a state that it watches has changed.
func (c commander) watch(ctx context.Context, s orchestrate.Call) (value.Map, error) {
	fun := s.SFun
	if fun == "" {
		fun = value.Str(s.Arg("sfun"))
	}
	s.Args = s.Args.Without("sfun")
	switch fun {
	case "wait", "run", "watch":
		return c.run(ctx, s)
	case "wait_script", "script":
		return c.script(ctx, s)
	}
	return value.Map{{Key: "name", Value: s.Name}, {Key: "changes", Value: value.Map{}}, {
		Key:   "comment",
		Value: fmt.Sprintf("cmd.%s does not work with the watch requisite, please use cmd.wait or cmd.wait_script", fun),
	}, {Key: "result", Value: false}}, nil
}

// command runs cmd.run_all: cmd is a text for a shell, or a list of words that runs without one.
func (c commander) command(ctx context.Context, s orchestrate.Call, cmd any, shell bool) (value.Map,
	error) {
	kwargs := value.Map{{Key: "python_shell", Value: shell}}
	if v := s.Arg("shell"); value.Truth(v) {
		kwargs = kwargs.Set("shell", v)
	}
	if s.Umask >= 0 {
		kwargs = kwargs.Set("umask", fmt.Sprintf("%04o", s.Umask))
	}
	for _, name := range passedOn {
		if v, given := s.Args.Get(name); given && v != nil {
			kwargs = kwargs.Set(name, v)
		}
	}
	v, err := c.d.Modules.Call(ctx, s.Master, "cmd.run_all", []any{cmd}, kwargs)
	if err != nil {
		return nil, err
	}
	done, ok := v.(value.Map)
	if !ok {
		return nil, errors.New("cmd.run_all did not return a map")
	}
	return done, nil
}

// source returns the text of a script, rendered if the state names a template. The bool is false if
// the script does not exist.
func (c commander) source(ctx context.Context, s orchestrate.Call, source string,
	vars value.Map) ([]byte, bool, error) {
	path, ok := strings.CutPrefix(source, "salt://")
	if !ok {
		text, err := os.ReadFile(source)
		if errors.Is(err, os.ErrNotExist) || !filepath.IsAbs(source) {
			return nil, false, nil
		}
		return text, err == nil, err
	}
	path, query, _ := strings.Cut(path, "?")
	env := s.Env
	if e, ok := strings.CutPrefix(query, "saltenv="); ok {
		env = e
	}
	file, text, found, err := c.d.Files.Read(env, path)
	if err != nil || !found {
		return nil, false, err
	}
	engine := s.Arg("template")
	if !value.Truth(engine) {
		return text, true, nil
	}
	if engine != "jinja" {
		return nil, false, fmt.Errorf("template %s is not available on a master; use jinja",
			value.Str(engine))
	}
	rendered, err := c.d.Render(ctx, s.Master, file, string(text), "jinja", vars)
	if err != nil {
		return nil, false, err
	}
	return []byte(value.Str(rendered)), true, nil
}

// scriptArguments are the words after the script's name, from args or else from the state's name.
func scriptArguments(args any, name string) ([]any, error) {
	if list, ok := args.([]any); ok && len(list) > 0 {
		return list, nil
	}
	line := ""
	if value.Truth(args) {
		line = value.Str(args)
	} else if len(strings.Fields(name)) > 1 {
		_, line, _ = strings.Cut(name, " ")
	}
	words, err := modules.ShellSplit(line)
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out, err
}

// tryName returns the command that a state runs. In test mode the parameter stateful may name
// another one (test_name); tried reports that this one really runs.
func tryName(s orchestrate.Call) (name string, stateful, tried bool) {
	name = s.Name
	list, ok := s.Arg("stateful").([]any)
	if !ok {
		return name, s.Arg("stateful") == true, false
	}
	if len(list) > 0 {
		first, _ := list[0].(value.Map)
		if other, ok := first.Get("test_name"); ok && s.Test {
			return value.Str(other), true, true
		}
	}
	return name, true, false
}

func isEnv(v any) bool {
	switch v.(type) {
	case nil, []any, value.Map:
		return true
	}
	return false
}

// unable says why a command can't run here; "" if it can.
func unable(s orchestrate.Call) string {
	if root := s.Arg("root"); value.Truth(root) {
		return "root is not available on a master, whose commands run without chroot; leave root out"
	}
	if cwd := s.Arg("cwd"); value.Truth(cwd) {
		if st, err := os.Stat(value.Str(cwd)); err != nil || !st.IsDir() {
			return fmt.Sprintf("Desired working directory \"%s\" is not available", value.Str(cwd))
		}
	}
	return ""
}

// ended completes the return of a state whose command ran.
func (c commander) ended(s orchestrate.Call, ret value.Map, stateful bool, code any) (value.Map,
	error) {
	ret, err := reinterpreted(ret, stateful)
	if err != nil {
		return nil, err
	}
	if changes, _ := ret.Get("changes"); s.Test && code == int64(0) && value.Truth(changes) {
		ret = ret.Set("result", nil)
	}
	return ret, nil
}

// reason is the text of an execution function's error, without the function's name.
func reason(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		return inner.Error()
	}
	return err.Error()
}
