package main

import (
	"context"

	"clustermaster/config/settings"
	"clustermaster/salt/hosted"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/master"
	"clustermaster/serve/userkeys"
	"clustermaster/value"
)

// openAccess makes the packages that decide who may order what and, with enable_clear_commands, the
// keys of users.
func (r *process) openAccess() error {
	o := r.opts
	var err error
	if r.rules, err = acl.New(settings.ACL(o)); err != nil {
		return err
	}
	if !o.EnableClearCommands {
		return nil
	}
	if len(o.PublisherACL) > 0 || len(o.ExternalAuth) > 0 {
		if err := userkeys.Open(o.CacheDir); err != nil {
			return err
		}
	}
	wanted := settings.UserKeys(o)
	wanted.Matches = func(user string) bool { return r.rules.Of(user) != nil }
	users, err := userkeys.OfSystem(wanted)
	if err != nil {
		return err
	}
	r.userKeys = userkeys.New(r.node, o.CacheDir, users, r.log)
	r.node.OnApply(r.userKeys.Follow)
	return nil
}

// users confirms users for clear commands.
type users struct{ *auth.Auth }

func (u users) Authenticate(ctx context.Context, source string, creds value.Map) (master.Identity,
	error) {
	id, err := u.Auth.Authenticate(ctx, source, creds)
	return master.Identity{Name: id.Name, Eauth: id.Eauth, Rights: id.Rights}, err
}

func (u users) ByToken(ctx context.Context, token string) (master.Identity, error) {
	id, err := u.Auth.ByToken(ctx, token)
	return master.Identity{Name: id.Name, Eauth: id.Eauth, Rights: id.Rights}, err
}

// newAuth connects external_auth with the replicated state of the masters.
func (r *process) newAuth() (*auth.Auth, error) {
	return auth.New(settings.Auth(r.opts), auth.Deps{
		Now: r.node.Now, Tokens: auth.Agreed{Cluster: r.node}, Log: r.log, Registry: r.reg,
		Others: hosted.Auth{Host: r.python, Site: settings.Modules(r.opts).Site("auth")},
		Python: auth.FindPython(r.opts.Extra["auth.pam.python"], r.render.Interpreter),
	})
}
