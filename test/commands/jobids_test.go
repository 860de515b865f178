package commands

// These reactions publish jobs with ids of their choice. The first job keeps no returns.
const jobIDReactions = `
nocache:
  local.test.arg: [{tgt: web-a}, {arg: [nocache]}, {jid: '$JUST244700'}, {nocache: True}]
cached:
  local.test.arg: [{tgt: web-a}, {arg: [cached]}, {jid: '$JUST244701_4711'}, {nocache: False}]
`

// jobIDLines show what becomes of jobs with nocache, and of ids made by unique_jid, on sides with
// that option.
func jobIDLines() []line {
	const nocache, cached = "$JUST244700", "$JUST244701_4711"
	var lines []line
	for _, jid := range []string{nocache, cached} {
		lines = append(lines,
			run("jobs.lookup_jid", jid, "--out=json"), run("jobs.lookup_jid", jid, "missing=True"),
			run("jobs.print_job", jid), run("jobs.list_job", jid, "--out=json"),
			run("jobs.exit_success", jid), run("jobs.lookup_jid", jid, "returned=False",
				"--out=json"))
	}
	return append(lines,
		run("jobs.list_jobs", "search_function=nosuch", "--out=json"),
		run("jobs.list_jobs", "start_time=$BEFORE", "end_time=$AFTER", "search_function=test.arg"),
		run("jobs.lookup_jid", "$JUST244701", "--out=json"),
		salt("--async", "web-a", "test.sleep", "600").saves("LONG"),
		salt("web-a", "saltutil.find_job", "$LONG").until("pid:").mask(`(?m)^( +pid:\n +)\d+`,
			"${1}PID"),
		salt("web-a", "saltutil.kill_job", "$LONG").mask(`pid \d+`, "pid PID"),
		salt("--show-jid", "web-a", "test.ping"),
		salt("--batch=1", "web-*", "test.ping", "--out=json").whichever(),
		run("test.arg", "a", "--async"),
	)
}
