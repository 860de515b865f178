package settings

import (
	"slices"
	"strings"

	"clustermaster/config"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/userkeys"
	"clustermaster/value"
)

// ACL takes the rules for users from the options.
func ACL(o *config.Options) acl.Options {
	publisher, _ := Value(o.PublisherACL).(value.Map)
	blacklist, _ := Value(o.PublisherACLBlacklist).(value.Map)
	return acl.Options{PublisherACL: publisher, Blacklist: blacklist, SudoACL: o.SudoACL}
}

// UserKeys returns whose keys clear commands accept, by the options.
func UserKeys(o *config.Options) userkeys.Wanted {
	w := userkeys.Wanted{Master: o.User, Verify: o.ClientACLVerify}
	publisher, _ := Value(o.PublisherACL).(value.Map)
	for _, p := range publisher {
		if name, ok := p.Key.(string); ok {
			w.Named = append(w.Named, name)
		}
	}
	return w
}

// Auth takes what external_auth needs from the options.
func Auth(o *config.Options) auth.Options {
	external, _ := Value(o.ExternalAuth).(value.Map)
	var backEnds value.Map
	for name, v := range o.Extra {
		if strings.HasPrefix(name, "auth.") {
			backEnds = append(backEnds, value.Pair{Key: name, Value: Revealed(v)})
		}
	}
	slices.SortFunc(backEnds, func(a, b value.Pair) int {
		return strings.Compare(a.Key.(string),
			b.Key.(string))
	})
	return auth.Options{
		External: external, PermissiveACL: o.PermissiveACL, ACLModule: o.EauthACLModule,
		KeepACLInToken: o.KeepACLInToken,
		TokenExpire:    o.TokenExpire, ExpireOverride: Value(o.TokenExpireUserOverride),
		HashType:     o.HashType,
		SharedSecret: o.SharedSecret.Reveal(), BackEnds: backEnds,
	}
}
