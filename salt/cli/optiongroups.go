package cli

import "strings"

// Option groups that several commands share.

// logLevels are the levels in the order in which Salt's errors name them.
var logLevels = []string{"all", "debug", "error", "critical", "garbage", "info", "profile", "quiet",
	"trace", "warning"}

const (
	groupTarget  = "Target Options"
	groupTarget2 = "Additional Target Options"
	groupEauth   = "External Authentication"
	groupOutput  = "Output Options"
	groupLog     = "Logging Options"
	groupActions = "Actions"
	groupGen     = "Key Generation Options"
	groupFiles   = "File Options"
)

var groupTexts = map[string]string{
	groupTarget:  "How to read the target. Default: a glob on the minion id.",
	groupTarget2: "",
	groupEauth:   "",
	groupOutput:  "How to print results.",
	groupLog:     "Options that override the configuration.",
	groupActions: "",
	groupGen:     "",
	groupFiles:   "",
}

// newParser makes a parser with the options that every command has.
func newParser(prog, usage, about string, examples ...string) *parser {
	return &parser{prog: prog, usage: usage, about: about, examples: examples, options: []option{
		{names: "--version", dest: "version", help: "Print the version and exit."},
		{names: "-V --versions-report", dest: "versions_report",
			help: "Print the versions of the program and its parts and exit."},
		{names: "-h --help", dest: "help", help: "Print this help and exit."},
		{names: "--saltfile", dest: "saltfile", kind: textValue,
			help: "File with default options. Default: ./Saltfile or ~/.salt/Saltfile, if one exists."},
		{names: "-c --config-dir", dest: "config_dir", kind: textValue,
			help: "Folder that holds the file master. Default: /etc/salt."},
		{names: "--hard-crash", dest: "hard_crash",
			help: "A signal ends the command with exit code 1 instead of 0."},
	}}
}

func (p *parser) add(group string, options ...option) {
	if group != "" {
		known := false
		for _, g := range p.groups {
			known = known || g[0] == group
		}
		if !known {
			p.groups = append(p.groups, [2]string{group, groupTexts[group]})
		}
	}
	for _, o := range options {
		o.group = group
		p.options = append(p.options, o)
	}
}

func (p *parser) addTargets(extended bool) {
	p.add(groupTarget,
		option{names: "-H --hosts", dest: "list_hosts", help: "For salt-ssh; lists nothing here."},
		option{names: "-E --pcre", dest: "pcre", help: "A regular expression on the minion id."},
		option{names: "-L --list", dest: "list",
			help: "Minion ids, separated by commas or blanks."},
		option{names: "-G --grain", dest: "grain",
			help: "A grain and a glob on its value: os:Arch*."},
		option{names: "-P --grain-pcre", dest: "grain_pcre",
			help: "A grain and a regular expression on its value: os:Arch.*."},
		option{names: "-N --nodegroup", dest: "nodegroup",
			help: "The name of a nodegroup in the configuration."},
		option{names: "-R --range", dest: "range",
			help: "A range expression. Not available: this master has no client for range servers."},
	)
	if extended {
		p.add(groupTarget,
			option{names: "-C --compound", dest: "compound",
				help: "Several kinds combined: 'G@os:RedHat and webser* or E@database.*'."},
			option{names: "-I --pillar", dest: "pillar",
				help: "A pillar key and a glob on its value: role:production*."},
			option{names: "-J --pillar-pcre", dest: "pillar_pcre",
				help: "A pillar key and a regular expression on its value: role:prod.*."},
			option{names: "-S --ipcidr", dest: "ipcidr",
				help: "An address or a subnet like 10.0.0.0/24."},
		)
	}
	p.add(groupTarget2, option{names: "--delimiter", dest: "delimiter", fromFile: true, kind: textValue,
		help: "Separator between the levels of a grain or pillar key. Default: ':'."})
}

// targetKinds are the dests of target options in the order in which Salt names them in errors.
var targetKinds = []string{"list_hosts", "pcre", "list", "grain", "grain_pcre", "nodegroup",
	"range", "compound", "pillar", "pillar_pcre", "ipcidr"}

// targetKind is the chosen kind of target; "glob" by default. Two kinds are a usageError.
func (p *parser) targetKind(v values) (string, error) {
	chosen, names := "glob", []string{}
	for _, dest := range targetKinds {
		if !v.on(dest) {
			continue
		}
		chosen = dest
		for _, o := range p.options {
			if o.dest == dest && o.group == groupTarget {
				names = append(names, lastField(o.names))
			}
		}
	}
	if len(names) > 1 {
		return "", exclusive(names)
	}
	return chosen, nil
}

func (p *parser) addTimeout(text string) {
	p.add("", option{names: "-t --timeout", dest: "timeout", kind: intValue, help: text})
}

func (p *parser) addArguments() {
	p.add("",
		option{names: "--args-stdin", dest: "args_stdin",
			help: "Read more options and arguments from standard input, one a line."},
		option{names: "--no-parse", dest: "no_parse", kind: textValue,
			value: "argname1,argname2,...", help: "Named arguments whose values stay text."},
	)
}

func (p *parser) addEauth(short string) {
	p.add(groupEauth,
		option{names: short + "--auth --eauth --external-auth", dest: "eauth", fromFile: true, kind: textValue,
			help: "External authentication system to use."},
		option{names: "-T --make-token", dest: "mktoken", fromFile: true,
			help: "Store a token for the next commands."},
		option{names: "--username", dest: "username", fromFile: true, kind: textValue,
			help: "User name for external authentication."},
		option{names: "--password", dest: "password", fromFile: true, kind: textValue,
			help: "Password for external authentication."},
	)
}

func (p *parser) addOutput() {
	p.add(groupOutput,
		option{names: "--out --output", dest: "output", kind: textValue,
			help: "Outputter: nested, json, yaml, txt, raw, pprint, highstate, table, newline_values_only or quiet."},
		option{names: "--out-indent --output-indent", dest: "output_indent", kind: intValue,
			help: "Indentation of json, yaml and pprint in blanks; a negative number prints one line."},
		option{names: "--out-file --output-file", dest: "output_file", kind: textValue,
			help: "Write the output to this file."},
		option{names: "--out-file-append --output-file-append", dest: "output_file_append",
			help: "Append to the file instead of emptying it first."},
		option{names: "--no-color --no-colour", dest: "no_color", help: "Print no colours."},
		option{names: "--force-color --force-colour", dest: "force_color",
			help: "Print colours even if the output is not a terminal."},
		option{names: "--state-output --state_output", dest: "state_output", kind: textValue,
			help: "How states are printed: full, terse, mixed, changes or filter; each also with _id."},
		option{names: "--state-verbose --state_verbose", dest: "state_verbose", kind: textValue,
			help: "False hides states that succeeded without changes."},
	)
}

func (p *parser) addLogging(names string) {
	p.add(groupLog,
		option{names: names, dest: "log_level", kind: textValue, choice: logLevels,
			help: "Level of messages on the terminal: all, garbage, trace, debug, profile, info, warning, error, critical or quiet."},
		option{names: "--log-file", dest: "log_file", kind: textValue, help: "Log file."},
		option{names: "--log-file-level", dest: "log_level_logfile", kind: textValue,
			choice: logLevels, help: "Level of messages in the log file."},
	)
}

func lastField(names string) string {
	f := strings.Fields(names)
	return f[len(f)-1]
}

func exclusive(names []string) error {
	return usageError("The options " + strings.Join(names, "/") +
		" are mutually exclusive. Please only choose one of them")
}
