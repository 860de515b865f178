package main

import (
	"fmt"
	"path/filepath"

	"clustermaster/config/settings"
	"clustermaster/salt/returner"
	"clustermaster/salt/runner"
	"clustermaster/salt/saltpython"
	"clustermaster/serve/event"
	"clustermaster/serve/orders"
	"clustermaster/store/outbox"
)

// openReturners makes what returners of the master get, before the first event. Without returners
// it makes nothing.
func (r *process) openReturners() error {
	o := settings.Returners(r.opts)
	if !o.Needed() {
		return nil
	}
	var err error
	r.outbox, err = outbox.Open(filepath.Join(r.opts.DataDir(), "outbox"),
		outbox.Options{Size: int64(r.opts.ReturnerQueueSize), Room: r.disk.Low, Seal: r.seal},
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

// settle waits until the disk has what is for returners.
func (r *process) settle() {
	if r.returners == nil {
		return
	}
	if err := r.returners.Sync(); err != nil {
		r.log.Error("events of a call may be lost for returners", "err", err)
	}
}

// jobReader is where jobs are looked up.
func (r *process) jobReader() runner.JobReader {
	ring := orders.JobReader{Cache: r.jobs}
	o := settings.Returners(r.opts)
	switch {
	case o.ExtJobCache != "": // minions write there what they return
		return orders.Database{Host: r.python, Returner: o.ExtJobCache, Ring: ring}
	case o.JobCache != "":
		return orders.Database{Host: r.python, Returner: o.JobCache, Ring: ring}
	}
	return ring
}

// otherJobs are the jobs of a returner that ext_source names.
func (r *process) otherJobs(returner string) (runner.JobReader, error) {
	if _, err := saltpython.Find(r.opts.PythonHost); err != nil {
		return nil, fmt.Errorf("ext_source %s is a returner in Python: %w", returner, err)
	}
	return orders.Database{Host: r.python, Returner: returner}, nil
}
