package hosted

import (
	"context"
	"fmt"

	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// Top calls a module of master_tops of the site or of Salt.
func (f *Functions) Top(ctx context.Context, name string, opts, grains value.Map) (value.Map,
	error) {
	session := f.d.Host.Session(pythonhost.Minion{})
	defer session.Close()
	v, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Top, Fun: name,
		Kwargs: value.Map{{Key: "opts", Value: opts}, {Key: "grains", Value: grains}}})
	if err != nil {
		return nil, err
	}
	m, ok := v.(value.Map)
	if !ok {
		return nil, fmt.Errorf("module %s of master_tops returned %T, not a map", name, v)
	}
	return m, nil
}

// Auth calls back ends of external_auth of the site or of Salt.
type Auth struct {
	Host *pythonhost.Host
	Site *pythonhost.Site
}

// Overrides reports whether the site has a back end of that name.
func (a Auth) Overrides(name string) bool { return a.Site.Has(name) }

func (a Auth) ask(ctx context.Context, name string, load value.Map) (any, error) {
	session := a.Host.Session(pythonhost.Minion{})
	defer session.Close()
	return session.Call(ctx, pythonhost.Call{Kind: pythonhost.Auth, Fun: name, Kwargs: load})
}

// Check reports whether a user's password is right, and returns the user's groups and rights; nil
// rights leave the decision to external_auth.
func (a Auth) Check(ctx context.Context, name, user, password string) (groups []string, list []any,
	good bool, err error) {
	v, err := a.ask(ctx, name, value.Map{{Key: "eauth", Value: name},
		{Key: "username", Value: user}, {Key: "password", Value: password}})
	m, _ := v.(value.Map)
	said, _ := m.Get("good")
	if err != nil || said != true {
		return nil, nil, false, err
	}
	rights, _ := m.Get("acl")
	list, given := rights.([]any)
	if rights != nil && !given {
		return nil, nil, false, fmt.Errorf("module %s: its acl returned %T, not a list", name,
			rights)
	}
	told, _ := m.Get("groups")
	names, _ := told.([]any)
	for _, g := range names {
		if text, ok := g.(string); ok {
			groups = append(groups, text)
		}
	}
	return groups, list, true, nil
}

// Expand expands parts of a user's list of rights.
func (a Auth) Expand(ctx context.Context, name string, list []any) ([]any, error) {
	v, err := a.ask(ctx, name, value.Map{{Key: "auth_list", Value: list}})
	if err != nil {
		return nil, err
	}
	out, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("module %s: its process_acl returned %T, not a list", name, v)
	}
	return out, nil
}
