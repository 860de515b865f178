// Package pythonhost runs what sites and Salt's ecosystem wrote in Python, by Salt's own loader, in
// processes beside the master.
//
// Lives here: the fork server of an interpreter that has Salt and its Python side (host.py), the
// children and their limits, the protocol with them, the texts of what went wrong in them, their
// log records, the list of a site's own modules.
//
// Does not: decide what is asked of Python (whoever holds the Host), answer what Python asks back
// (Options.Answer), know pillars, templates or runners.
//
// Guarantee: a call ends with a value or an error within its limits, whatever its function does;
// a child sees one minion only, and what one does to its process costs no other call.
package pythonhost
