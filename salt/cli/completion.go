package cli

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// shells are the supported shells, each with the file where it looks for the completion.
var shells = []struct {
	name, file string
	write      func(w io.Writer, file string, programs []*parser)
}{
	{"bash", "/etc/bash_completion.d/clustermaster", writeBash},
	{"zsh", "/usr/local/share/zsh/site-functions/_clustermaster", writeZsh},
	{"fish", "/etc/fish/completions/salt.fish", writeFish},
}

// Completion is the command clustermaster completion SHELL. It prints a script with which the shell
// completes the options of Salt's commands and of the other programs.
func Completion(args []string, env Env, others ...Program) int {
	for _, s := range shells {
		if len(args) == 1 && args[0] == s.name {
			s.write(env.Stdout, s.file, completed(others))
			return ExitOK
		}
	}
	to, code := env.Stderr, ExitUsage
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		to, code = env.Stdout, ExitOK
	}
	fmt.Fprintln(to, "Usage: clustermaster completion bash|zsh|fish\n\n"+
		"Prints the completion of all commands for a shell.\n\nExamples:")
	for _, s := range shells {
		fmt.Fprintf(to, "  clustermaster completion %s > %s\n", s.name, s.file)
	}
	return code
}

func completed(others []Program) []*parser {
	all := []*parser{saltParser(), saltKeyParser(), saltRunParser(), saltCPParser()}
	for _, o := range others {
		all = append(all, o.parser())
	}
	return all
}

func (o option) takesValue() bool { return o.kind != flagOn && o.kind != flagOff }

// words are the values that a shell offers for an option; nil if any text will do.
func (o option) words() []string {
	switch {
	case o.choice != nil:
		return o.choice
	case o.dest == "output":
		return strings.Fields("highstate json nested newline_values_only pprint quiet raw table txt yaml")
	case o.dest == "list" && o.takesValue():
		return strings.Fields("accepted all denied rejected unaccepted")
	case o.dest == "state_output":
		return strings.Fields("full terse mixed changes filter full_id terse_id mixed_id changes_id filter_id")
	}
	return nil
}

// isFolder and isFile report whether the option's value is a folder or a file.
func (o option) isFolder() bool { return o.dest == "config_dir" || o.dest == "gen_keys_dir" }
func (o option) isFile() bool {
	return o.dest == "output_file" || o.dest == "log_file" || o.dest == "saltfile"
}

const (
	// The shell runs askMinions for ids of minions and askRunners for runner functions.
	askMinions = "salt-key -l acc --out=newline_values_only 2>/dev/null"
	askRunners = `salt-run -d 2>/dev/null | sed -n 's/^\([a-z_]*\.[a-z_0-9]*\):$/\1/p'`
	// askFunctions asks one minion for its functions once a day and caches the answer.
	askFunctions = `f="${XDG_CACHE_HOME:-$HOME/.cache}/clustermaster/functions"; ` +
		`if [ -z "$(find "$f" -mtime -1 -size +0 2>/dev/null)" ]; then mkdir -p "${f%/*}"; ` +
		`salt --subset=1 -t 3 --out=newline_values_only '*' sys.list_functions 2>/dev/null | tr -d "[],'" | tr ' ' '\n' | grep '\.' >"$f.$$"; ` +
		`mv "$f.$$" "$f"; fi; cat "$f"`
)

func writeBash(w io.Writer, file string, programs []*parser) {
	fmt.Fprintf(w,
		"# bash completion for the commands of clustermaster\n# to use: clustermaster completion bash > %s\n\n_clustermaster_functions() { %s; }\n\n", file, askFunctions)
	for _, p := range programs {
		var flags, plain, cases []string
		for _, o := range p.options {
			names := strings.Fields(o.names)
			flags = append(flags, names...)
			action := ""
			switch {
			case o.words() != nil:
				action = `-W "` + strings.Join(o.words(), " ") + `"`
			case o.isFolder():
				action = "-d"
			case o.isFile():
				action = "-f"
			case o.takesValue():
				plain = append(plain, names...)
			}
			if action != "" {
				cases = append(cases,
					fmt.Sprintf("    %s) COMPREPLY=($(compgen %s -- \"$cur\")); return ;;\n",
						strings.Join(names, "|"), action))
			}
		}
		sort.Strings(flags)
		operand := ""
		switch p.prog {
		case "salt":
			operand = `    if [[ $COMP_CWORD -gt 1 && $prev != -* ]]; then COMPREPLY=($(compgen -W "$(_clustermaster_functions)" -- "$cur"))` + "\n" +
				`    else COMPREPLY=($(compgen -W "'*' $(` + askMinions +
				`)" -- "$cur")); fi` + "\n"
		case "salt-cp":
			operand = `    [[ $COMP_CWORD -gt 1 ]] || COMPREPLY=($(compgen -W "'*' $(` +
				askMinions + `)" -- "$cur"))` + "\n"
		case "salt-run":
			operand = `    COMPREPLY=($(compgen -W "$(` + askRunners + `)" -- "$cur"))` + "\n"
		}
		if p.words != nil {
			operand = `    [[ $COMP_CWORD -gt 1 ]] || COMPREPLY=($(compgen -W "` +
				strings.Join(p.words, " ") + `" -- "$cur"))` + "\n"
		}
		fn := "_clustermaster_" + strings.ReplaceAll(p.prog, "-", "_")
		fmt.Fprintf(w, `%s() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    if [[ $cur == "=" ]]; then cur=; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    case $prev in
%s%s    esac
    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "%s" -- "$cur")); return; fi
%s}
complete -F %s %s

`, fn, strings.Join(cases, ""), noWords(plain), strings.Join(flags, " "), operand, fn, p.prog)
	}
}

// noWords is the case for options that take any text; "" for none, because a shell
// refuses an empty pattern.
func noWords(options []string) string {
	if len(options) == 0 {
		return ""
	}
	return "    " + strings.Join(options, "|") + ") return ;;\n"
}

func writeZsh(w io.Writer, file string, programs []*parser) {
	var names []string
	for _, p := range programs {
		names = append(names, p.prog)
	}
	fmt.Fprintf(w,
		"#compdef %s\n# zsh completion for the commands of clustermaster\n# to use: clustermaster completion zsh > %s\n\n", strings.Join(names, " "), file)
	fmt.Fprintf(w,
		"_clustermaster_minions() { compadd -- '*' ${(f)\"$(%s)\"} }\n_clustermaster_runners() { compadd -- ${(f)\"$(%s)\"} }\n"+
			"_clustermaster_functions() { compadd -- ${(f)\"$(%s)\"} }\n\ncase $service in\n",
		askMinions, askRunners, askFunctions)
	quote := strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`)
	for _, p := range programs {
		fmt.Fprintf(w, "%s)\n    _arguments -S", p.prog)
		for _, o := range p.options {
			value := ""
			if o.takesValue() {
				value = ":" + strings.ToLower(o.dest) + ":"
				switch {
				case o.words() != nil:
					value += "(" + strings.Join(o.words(), " ") + ")"
				case o.isFolder():
					value += "_files -/"
				case o.isFile():
					value += "_files"
				}
			}
			for _, name := range strings.Fields(o.names) {
				if o.takesValue() && strings.HasPrefix(name, "--") {
					name += "="
				}
				fmt.Fprintf(w, " \\\n        '%s[%s]%s'", name, quote.Replace(o.help), value)
			}
		}
		switch p.prog {
		case "salt":
			fmt.Fprint(w,
				" \\\n        '1:target:_clustermaster_minions' '2:function:_clustermaster_functions' '*:argument:_files'")
		case "salt-cp":
			fmt.Fprint(w, " \\\n        '1:target:_clustermaster_minions' '*:argument:_files'")
		case "salt-run":
			fmt.Fprint(w, " \\\n        '1:function:_clustermaster_runners' '*:argument:'")
		}
		if p.words != nil {
			fmt.Fprintf(w, " \\\n        '1:command:(%s)' '*:argument:_files'",
				strings.Join(p.words, " "))
		}
		fmt.Fprint(w, "\n    ;;\n")
	}
	fmt.Fprint(w, "esac\n")
}

func writeFish(w io.Writer, file string, programs []*parser) {
	fmt.Fprintf(w,
		"# fish completion for the commands of clustermaster\n# to use: clustermaster completion fish > %s\n"+
			"# fish loads a file by the name of the command: link this one also as "+
			"salt-key.fish, salt-run.fish and salt-cp.fish\n\n", file)
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`)
	fmt.Fprintf(w, "function __clustermaster_functions\n    sh -c '%s'\nend\n\n",
		quote.Replace(askFunctions))
	for _, p := range programs {
		if p.prog != "salt-cp" {
			fmt.Fprintf(w, "complete -c %s -f\n", p.prog)
		}
		if p.words != nil {
			fmt.Fprintf(w, "complete -c %s -n 'test (count (commandline -opc)) -eq 1' -a '%s'\n",
				p.prog, strings.Join(p.words, " "))
		}
		switch p.prog {
		case "salt", "salt-cp":
			fmt.Fprintf(w, "complete -c %s -n 'test (count (commandline -opc)) -eq 1' -a '(%s)'\n",
				p.prog, quote.Replace(askMinions))
			if p.prog == "salt" {
				fmt.Fprintln(w,
					"complete -c salt -n 'test (count (commandline -opc)) -ge 2' -a '(__clustermaster_functions)'")
			}
		case "salt-run":
			fmt.Fprintf(w, "complete -c %s -n 'test (count (commandline -opc)) -eq 1' -a '(%s)'\n",
				p.prog, quote.Replace(askRunners))
		}
		for _, o := range p.options {
			line := "complete -c " + p.prog
			for _, name := range strings.Fields(o.names) {
				if long, ok := strings.CutPrefix(name, "--"); ok {
					line += " -l " + long
				} else {
					line += " -s " + name[1:]
				}
			}
			switch {
			case o.words() != nil:
				line += " -x -a '" + strings.Join(o.words(), " ") + "'"
			case o.isFolder():
				line += " -x -a '(__fish_complete_directories)'"
			case o.isFile():
				line += " -r -F"
			case o.takesValue():
				line += " -x"
			}
			fmt.Fprintf(w, "%s -d '%s'\n", line, quote.Replace(o.help))
		}
	}
}
