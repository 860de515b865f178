package reactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"clustermaster/salt/render"
	"clustermaster/store/smallfile"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// Bounds on the files of one entry of a reactor.
const (
	maxFiles    = 1000
	maxFileSize = 16 << 20
)

// sls is one SLS file.
type sls struct {
	path, saltenv string
	data          []byte
}

// file renders the files of one path, glob or salt:// address into common high data. It logs errors
// of a file and uses the others.
func (r *Reactor) file(ctx context.Context, ref, tag string, data value.Map) (high value.Map) {
	found, shown, err := r.find(ref)
	if err != nil {
		r.m.wrong.Inc()
		r.log.Error(fmt.Sprintf("Can not render SLS %s for tag %s. File missing or not found.",
			shown, tag), "err", err)
		return nil
	}
	for _, f := range found {
		part, err := r.render(ctx, f, tag, data)
		if err != nil {
			r.m.wrong.Inc()
			r.log.Error(fmt.Sprintf("Failed to render \"%s\": ", f.path), "tag", tag, "err", err)
			continue
		}
		high = merge(high, part)
	}
	return high
}

// merge merges high data into other high data: the later one wins an ID that both have.
func merge(high, over value.Map) value.Map {
	for _, e := range over {
		if id, ok := e.Key.(string); ok {
			high = high.Set(id, e.Value)
		} else {
			high = append(high, e) // verify reports its error
		}
	}
	return high
}

// errNoFile is returned for a path without files.
var errNoFile = errors.New("no such file; write a path on the master's disk, or one that begins with salt://")

// find reads the files of a path, glob or salt:// address; shown is its name in messages.
func (r *Reactor) find(ref string) (found []sls, shown string, err error) {
	if address, ok := strings.CutPrefix(ref, "salt://"); ok {
		path, query, _ := strings.Cut(address, "?")
		env := "base"
		if values, err := url.ParseQuery(query); err == nil && values.Get("saltenv") != "" {
			env = values.Get("saltenv")
		}
		abs, data, ok, err := r.deps.File(env, path)
		if err != nil {
			return nil, "", err
		}
		if !ok {
			return nil, "", fmt.Errorf("%s: %w", ref, errNoFile)
		}
		return []sls{{abs, env, data}}, abs, nil
	}
	paths := fnmatch.Glob(ref)
	if len(paths) == 0 {
		return nil, ref, errNoFile
	}
	if len(paths) > maxFiles {
		return nil, ref, fmt.Errorf("%d files; at most %d are allowed", len(paths), maxFiles)
	}
	for _, p := range paths {
		f := sls{path: p, saltenv: "base"}
		info, err := os.Stat(p)
		if err != nil || !info.Mode().IsRegular() {
			r.log.Error("Template does not exist: " + p)
			continue
		}
		if f.data, err = smallfile.Read(p, maxFileSize); err != nil {
			return nil, ref, err
		}
		found = append(found, f)
	}
	return found, ref, nil
}

// render makes high data from one file. Every ID gets the file's name, for messages.
func (r *Reactor) render(ctx context.Context, f sls, tag string, data value.Map) (value.Map,
	error) {
	if len(bytes.TrimSpace(f.data)) == 0 {
		return nil, nil
	}
	val, err := r.deps.Renderer.Render(ctx,
		render.Source{Path: f.path, SaltEnv: f.saltenv, Data: f.data,
			Once: true}, r.opts.Renderer, render.Context{
			ID: r.opts.ID, Grains: r.opts.Grains, Opts: r.opts.Opts,
			Vars: value.Map{{Key: "tag", Value: tag}, {Key: "data", Value: data}},
		}, r.deps.Host)
	if err != nil {
		return nil, err
	}
	high, ok := val.(value.Map)
	if !ok {
		return nil, errors.New("it does not render to a map of IDs")
	}
	if high, err = pad(high); err != nil {
		return nil, err
	}
	for i, e := range high {
		body, ok := e.Value.(value.Map)
		if !ok {
			return nil, fmt.Errorf("ID %v is not a map of kinds of reactions", e.Key)
		}
		high[i].Value = body.Set("__sls__", f.path)
	}
	return high, nil
}
