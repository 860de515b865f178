package main

import (
	"path/filepath"

	"clustermaster/config/settings"
	"clustermaster/salt/returner"
	"clustermaster/serve/event"
	"clustermaster/serve/orders"
	"clustermaster/store/outbox"
)

// openReturners makes the master's returners, before the first event. Without returners it makes
// nothing.
func (r *process) openReturners() error {
	o := settings.Returners(r.opts)
	if !o.Needed() {
		return nil
	}
	var err error
	r.outbox, err = outbox.Open(filepath.Join(r.opts.DataDir(), "outbox"),
		outbox.Options{Size: int64(r.opts.ReturnerQueueSize), Room: r.disk.Usable, Seal: r.seal},
		r.log, r.reg)
	if err != nil {
		return err
	}
	r.returners = returner.New(returner.Deps{
		Box: r.outbox, Log: r.log, Fire: r.bus.Fire,
		Session: func() returner.Session { return r.python.Keeper() }, // made after the bus
	}, o)
	r.bus.Keep(r.returners.Wants,
		func(e event.Event) { r.returners.Event(e.Tag, e.Data) })
	return nil
}

// databases gives the jobs that returners keep.
func (r *process) databases() orders.Databases {
	return orders.Databases{Host: r.python, Interpreter: r.opts.PythonHost,
		Ring: orders.JobReader{Cache: r.jobs}}
}
