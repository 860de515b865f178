package runner

// clientKeys are keys of low data that control the call and are not arguments.
var clientKeys = []string{
	"__jid__", "__tag__", "__user__", "client", "cmd", "eauth", "full_return", "fun", "kwarg",
	"match", "password", "print_event", "token", "username",
}
