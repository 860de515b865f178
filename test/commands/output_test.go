package commands

// sample contains values that outputters treat differently.
const sample = `{"/": {"1K-blocks": "100", "used": null, "mounts": ["a", {"b": 1, "c": [1, 2]}, []], "empty": {}, "t": true, "f": 1.5, "s": "", "multi": "line1\nline2\n", "ml": ["x\ny", ["in", ["deep"]]]}, "ü": "é", "n": -3, "yes": "no"}`

func outputScenes() []scene {
	outputter := func(args ...string) line {
		return salt(append([]string{"web-a", "test.outputter", sample}, args...)...)
	}
	state := func(args ...string) line {
		return salt(append([]string{"web-a", "state.single"}, args...)...)
	}
	var forms, states []line
	for _, out := range []string{"nested", "json", "yaml", "txt", "text", "raw", "pprint",
		"highstate", "no_return"} {
		forms = append(forms, outputter("--out="+out))
	}
	forms = append(forms, outputter("--out=key").unlike("Outputters that fail",
		begins("web-a:\n    ----------\n    /:\n", "", 0)))
	for _, out := range []string{"json", "yaml", "pprint"} {
		forms = append(forms, outputter("--out="+out, "--out-indent=-1"),
			outputter("--out="+out, "--out-indent=2"))
	}
	for _, mode := range []string{"full", "terse", "mixed", "changes", "filter", "terse_id"} {
		states = append(states, state("test.succeed_with_changes", "name=x",
			"--state-output="+mode))
	}
	states = append(states,
		state("test.nop", "name=x"), state("test.fail_without_changes", "name=x"),
		state("test.fail_with_changes", "name=x"),
		state("test.succeed_with_changes", "name=x", "test=True"),
		state("test.nop", "name=x", "--state-verbose=False"),
		state("test.nop", "name=x", "--output-diff"),
		state("test.nop", "name=x", "--out=nested").mask(`SPAN|(?m)^( *duration:\n *)[0-9.]+`,
			"${1}SPAN"),
		state("test.succeed_with_changes", "name=x", "--force-color"),
		state("test.fail_without_changes", "name=x", "--force-color"), state("no.such", "name=x"),
		state("test.nop", "name=x", "--state-output=terse", "--force-color"),
	)
	return []scene{
		{name: "09_outputters", lines: forms},
		{name: "07_outputters_of_ping", lines: []line{
			salt("web-*", "test.ping", "--out=json").blocks(`^\{`),
			salt("web-*", "test.ping", "--out=json", "--out-indent=-1").anyOrder(),
			salt("web-*", "test.ping", "--out=yaml").anyOrder(),
			salt("web-*", "test.ping", "--out=txt").anyOrder(),
			salt("web-*", "test.ping", "--out=raw").anyOrder(),
			salt("web-a", "cmd.run", "printf 'a\\nb\\n'", "--out=txt"),
			salt("web-a", "cmd.run", "true"),
			salt("web-a", "test.echo", ""),
			salt("web-a", "test.outputter", "[]"),
			salt("web-a", "test.outputter", "{}"),
			salt("web-a", "test.outputter", "[[1, 2], [3]]"),
		}},
		{name: "10_outputters_that_are_gone", lines: []line{
			salt("web-a", "test.ping", "--out=nosuch"),
			salt("web-a", "test.ping", "--out=quiet").unlike("Outputters of 3006",
				prints("", "", 0)),
			salt("web-a", "cmd.run", "echo a",
				"--out=newline_values_only").unlike("Outputters of 3006", prints("a\n", "", 0)),
			salt("web-a", "test.outputter", "[{a: 1, b: 2}, {a: 3, b: 4}]", "--out=table"),
		}},
		{name: "23_out_file", lines: []line{
			salt("web-a", "test.ping", "--out-file=DIR/out").writes("DIR/out"),
			salt("web-a", "test.echo", "x", "--out-file=DIR/out").writes("DIR/out"),
			salt("web-a", "test.echo", "y", "--out-file=DIR/out", "--out-file-append",
				"--out=json").writes("DIR/out"),
			salt("web-a", "cmd.run", "exit 3", "--output-file=DIR/out").writes("DIR/out"),
			salt("web-a", "test.echo", "z", "--out-file=DIR/out",
				"--force-color").writes("DIR/out"),
		}},
		{name: "23_saltrc", before: withFiles(map[string]string{
			"rc/.saltrc": "output: json\n", "xdg/salt/saltrc": "output: txt\nverbose: True\n",
			"client": "output: yaml\n",
		}), lines: []line{
			salt("web-a", "test.ping").within("HOME=DIR/rc"),
			salt("web-a", "test.ping").within("HOME=DIR/rc", "XDG_CONFIG_HOME=DIR/xdg"),
			salt("web-a", "test.ping", "--out=pprint").within("HOME=DIR/rc"),
			salt("web-a", "test.ping").within("HOME=DIR/rc", "SALT_CLIENT_CONFIG=DIR/client"),
			salt("web-a", "test.ping").within("HOME=DIR/rc", "SALT_CLIENT_CONFIG=DIR/none"),
			run("test.arg", "x").within("HOME=DIR/rc"),
			key("-l", "acc").within("HOME=DIR/rc", "SALT_CLIENT_CONFIG=DIR/client"),
			cp("web-a", "DIR/client", "DIR/client2").within("HOME=DIR/rc"),
		}},
		{name: "24_colours", lines: []line{
			outputter("--force-color"),
			salt("web-a", "cmd.run", "exit 3", "--force-color"),
			salt("web-a", "test.outputter", "[1, [2], {a: b}]", "--force-color"),
			salt("web-a", "test.ping", "--no-color", "--force-color"),
			salt("web-a", "test.ping", "--no-colour"),
		}},
		{name: "29_states", lines: states},
	}
}
