package main

import (
	"context"
	"fmt"
	"os"

	"clustermaster/config"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/master"
	"clustermaster/serve/userkeys"
	"clustermaster/wire"
)

func aclOptions(o *config.Options) acl.Options {
	publisher, _ := wireValue(o.PublisherACL).(wire.Map)
	blacklist, _ := wireValue(o.PublisherACLBlacklist).(wire.Map)
	return acl.Options{PublisherACL: publisher, Blacklist: blacklist, SudoACL: o.SudoACL}
}

// openAccess makes what decides who may order what, and with enable_clear_commands the keys of users.
func (r *rooms) openAccess() error {
	o := r.opts
	publisher, _ := wireValue(o.PublisherACL).(wire.Map)
	var err error
	if r.rules, err = acl.New(aclOptions(o)); err != nil {
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
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return fmt.Errorf("read users of the system: %w", err)
	}
	wanted := userkeys.Wanted{
		Master: o.User, Verify: o.ClientACLVerify,
		Matches: func(user string) bool { return r.rules.Of(user) != nil },
	}
	for _, p := range publisher {
		if name, ok := p.Key.(string); ok {
			wanted.Named = append(wanted.Named, name)
		}
	}
	r.userKeys = userkeys.New(r.node, o.CacheDir, userkeys.Users(string(passwd), wanted), r.log)
	r.node.OnApply(r.userKeys.Follow)
	return nil
}

// users confirms users for clear commands.
type users struct{ *auth.Auth }

func (u users) Authenticate(ctx context.Context, source string, creds wire.Map) (master.Identity, error) {
	id, err := u.Auth.Authenticate(ctx, source, creds)
	return master.Identity{Name: id.Name, Eauth: id.Eauth, Rights: id.Rights}, err
}

func (u users) ByToken(ctx context.Context, token string) (master.Identity, error) {
	id, err := u.Auth.ByToken(ctx, token)
	return master.Identity{Name: id.Name, Eauth: id.Eauth, Rights: id.Rights}, err
}
