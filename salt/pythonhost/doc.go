// Package pythonhost runs Python code of sites and of Salt's ecosystem with Salt's own loader, in
// processes beside the master.
//
// Lives here: the fork server of an interpreter that has Salt and its Python side (host.py), the
// children and their limits, the protocol with them, the texts of their errors, their log records,
// the list of a site's own modules.
//
// Does not: decide what Python runs (the user of Host does), answer Python's questions
// (Options.Answer), know pillars, templates or runners.
//
// Guarantee: a call ends with a value or an error within its limits, whatever its function does. A
// child serves one minion at a time, the next one with modules loaded anew, and no other once its
// process is damaged.
package pythonhost
