// Package auth checks who somebody is by external_auth, and keeps the tokens that stand for that.
//
// Lives here: the back ends of Salt 3008 (auto, file, ldap, pam, rest, sharedsecret), the guard
// around them (bounds, constant time of a refusal), what a user may order as the option
// external_auth or the back end says, making, finding and deleting tokens. Does not: match orders
// with rights (package acl), agree on tokens (package cluster), know sockets and commands (packages
// operator, master, cli).
//
// Guarantee: an Identity is handed out only for credentials that a back end has just confirmed, or
// for a token that was made from such, has not expired and is not deleted. No credential is logged,
// kept or put into an error.
//
// How it is meant. A door (the operator's socket, the clear commands of port 4506) has a small
// interface of its own, filled by *Auth:
//
//	id, err := a.Authenticate(ctx, creds)   // eauth, username, password of a request
//	id, err := a.ByToken(ctx, token)        // token of a request
//
// errors.Is(err, auth.ErrRefused) means what Salt's answers "Authentication error occurred." and
// the like mean, whatever the cause was: the door tells its caller no more. It has been logged and
// counted here. Authenticate returns a refusal after about a second, as Salt does; other calls go
// on meanwhile. The rights of an Identity are never nil: master.PublishRequest.Rights and acl's
// Allow, AllowRunner and AllowWheel take them as they are, and no rights at all still means
// find_job only.
//
//	data, err := a.MakeToken(ctx, creds)    // mk_token: Salt's map, with the token
//	data, ok := a.Token(ctx, token)         // get_token: Salt's map; false: {}
//	had, err := a.DeleteToken(ctx, token)
package auth
