// Package auth authenticates users by external_auth, and keeps the tokens that replace their
// credentials.
//
// Lives here: the back ends of Salt 3008 (auto, file, ldap, pam, rest, sharedsecret), the guard
// around them (bounds, constant time of a refusal), what a user may order according to the option
// external_auth or the back end, making, finding and deleting tokens. Does not: match orders with
// rights (package acl), agree on tokens (package cluster), know sockets and commands (packages
// operator, master, cli).
//
// Guarantee: an Identity is returned only for credentials that a back end has just confirmed, or
// for a token that was made from such credentials, has not expired and is not deleted. No
// credential is logged, kept or put into an error.
//
// Use: an entry point (the operator's socket, the clear commands of port 4506) has a small
// interface of its own, which *Auth implements:
//
//	id, err := a.Authenticate(ctx, creds)   // eauth, username, password of a request
//	id, err := a.ByToken(ctx, token)        // token of a request
//
// errors.Is(err, auth.ErrRefused) has the meaning of Salt's "Authentication error occurred." and
// the like, whatever the cause: the entry point tells its caller nothing more. This package has
// logged and counted it. Authenticate returns a refusal after about a second, as Salt does; other
// calls go on meanwhile. The rights of an Identity are never nil: master.PublishRequest.Rights and
// acl's Allow, AllowRunner and AllowWheel accept them as they are, and empty rights still allow
// find_job only.
//
//	data, err := a.MakeToken(ctx, creds)    // mk_token: Salt's map, with the token
//	data, ok := a.Token(ctx, token)         // get_token: Salt's map; false: {}
//	had, err := a.DeleteToken(ctx, token)
package auth
