package main

import (
	"context"
	"crypto/rand"

	"clustermaster/config/settings"
	"clustermaster/salt/engine"
	"clustermaster/salt/hosted"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/saltpython"
	"clustermaster/serve/orders"
	"clustermaster/value"
)

// openPython connects the functions of templates with Salt's functions in Python. It starts no
// process.
func (r *process) openPython() {
	o := settings.Python(r.opts)
	o.Python = saltpython.Finder(r.opts.PythonHost)
	opts, _ := settings.Value(r.opts.Extra).(value.Map)
	r.python = hosted.NewHost(r.modules, o, opts.Set("id", r.opts.ID),
		func(ctx context.Context, q pythonhost.Question) (any, bool, error) {
			return r.pythonOrders().Answer(ctx, q)
		}, r.log, r.reg)
	r.hosted = hosted.New(hosted.Deps{Native: r.modules, Host: r.python, Find: o.Python,
		Folders: settings.Modules(r.opts), Changed: r.extensions.Look, Log: r.log,
		Engines: func() value.Map { return r.engines.View() }, SSHTimeout: r.opts.PythonSSHTimeout})
	r.orders.SetRoster(r.hosted.SSH)
	r.engines = engine.New(settings.Engines(r.opts), engine.Deps{Lead: r.node, Alone: r.port == nil,
		Session:    func(guard engine.Guard) engine.Session { return r.python.Engine(guard) },
		Extensions: r.extensions.Digest, ID: r.opts.ID, Log: r.log, Reg: r.reg})
}

// everywhere copies the site's modules to all masters.
func (r *process) everywhere() orders.Everywhere {
	return orders.Everywhere{PythonHost: r.hosted, Stager: r.hosted, ID: r.opts.ID, Members: r.node.Peers().Members,
		Alive: r.node.Peers().Alive, Bus: r.bus, Mesh: r.mesh, NewID: rand.Text, Log: r.log}
}

// pythonOrders carries out what Python code orders of this master.
func (r *process) pythonOrders() orders.Python {
	return orders.Python{Minions: r.orders, Functions: r.functions, Jobs: r.jobs, NewJID: r.newJID, Fire: r.bus.Fire,
		Key: r.node.ClusterKey}
}
