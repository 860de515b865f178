package cli

import (
	"fmt"
	"io"
	"sort"
	"strings"
)

// Completion is the command clustermaster completion SHELL: it prints a script with which the shell completes the commands' options.
func Completion(args []string, env Env) int {
	if len(args) != 1 || args[0] != "bash" {
		env.errorf("Usage: clustermaster completion bash\n\nExample:\n  clustermaster completion bash > /etc/bash_completion.d/clustermaster")
		return ExitUsage
	}
	writeBash(env.Stdout)
	return ExitOK
}

func writeBash(w io.Writer) {
	fmt.Fprint(w, "# bash completion for salt, salt-key, salt-run and salt-cp of clustermaster\n"+
		"# to use: clustermaster completion bash > /etc/bash_completion.d/clustermaster\n\n")
	for _, p := range []*parser{saltParser(), saltKeyParser(), saltRunParser(), saltCPParser()} {
		var flags []string
		var valued []string
		for _, o := range p.options {
			for _, n := range strings.Fields(o.names) {
				flags = append(flags, n)
				if o.kind != flagOn && o.kind != flagOff {
					valued = append(valued, n)
				}
			}
		}
		sort.Strings(flags)
		sort.Strings(valued)
		fn := "_clustermaster_" + strings.ReplaceAll(p.prog, "-", "_")
		fmt.Fprintf(w, `%s() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    if [[ $cur == "=" ]]; then cur=; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    case $prev in
    --out|--output) COMPREPLY=($(compgen -W "%s" -- "$cur")); return ;;
%s    --log-level|--log-file-level) COMPREPLY=($(compgen -W "%s" -- "$cur")); return ;;
    -c|--config-dir|--gen-keys-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
    --out-file|--output-file|--log-file|--saltfile) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    %s) return ;;
    esac
    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "%s" -- "$cur")); return; fi
%s}
complete -F %s %s

`, fn, "highstate json nested newline_values_only pprint quiet raw table txt yaml", lowerL(p.prog), strings.Join(logLevels, " "), strings.Join(valued, "|"),
			strings.Join(flags, " "), operandCompletion(p.prog), fn, p.prog)
	}
}

// lowerL completes -l, which is a list in salt-key and a log level elsewhere.
func lowerL(prog string) string {
	words, names := strings.Join(logLevels, " "), "-l"
	if prog == "salt-key" {
		words, names = "accepted all denied rejected unaccepted", "-l|--list"
	}
	return "    " + names + `) COMPREPLY=($(compgen -W "` + words + `" -- "$cur")); return ;;` + "\n"
}

// operandCompletion completes what is no option: ids of minions where they can be asked for, functions of the runner.
func operandCompletion(prog string) string {
	switch prog {
	case "salt", "salt-cp":
		return `    [[ $COMP_CWORD -gt 1 ]] || COMPREPLY=($(compgen -W "'*' $(salt-key -l acc --out=newline_values_only 2>/dev/null)" -- "$cur"))` + "\n"
	case "salt-run":
		return `    COMPREPLY=($(compgen -W "$(salt-run -d 2>/dev/null | sed -n 's/^\([a-z_]*\.[a-z_]*\):$/\1/p')" -- "$cur"))` + "\n"
	}
	return ""
}
