package fsm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// OpAudited is the number of Audited.
const OpAudited Op = 23

// Bounds of each list of the audit trail. Each kind has two lists, one of what operators ordered
// and one of automatic changes. So many changes of one kind don't push out those of another, and
// changes that minions cause don't push out an operator's.
const (
	keptAudits     = 1000
	keptAuditBytes = 256 << 10
	maxAuditText   = 256 // bytes of one text
	maxSubjects    = 20  // named in one record; the others are only counted
)

// Orderer identifies who ordered a change, according to the master that took the order.
type Orderer struct {
	At     time.Time `msgpack:"at"`     // clock of that master, UTC
	Master string    `msgpack:"master"` // its id
	User   string    `msgpack:"user"`
	Eauth  string    `msgpack:"eauth"` // back end of external_auth that knows the user, or ""
	// a socket and its user, an address, or the part of the master that acted
	From  string `msgpack:"from"`
	Order string `msgpack:"order"` // the function or command that was called
	// Automatic says that no operator gave this order, but the reactor, the schedule, a minion or
	// the master itself.
	Automatic bool `msgpack:"automatic"`
}

// clipped bounds the texts, which come from callers.
func (o Orderer) clipped() Orderer {
	o.At = o.At.UTC()
	for _, text := range []*string{&o.Master, &o.User, &o.Eauth, &o.From, &o.Order} {
		*text = clip(*text)
	}
	return o
}

func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxAuditText)], "")
}

// AuditKind is what an audited change concerns. The numbers are in snapshots: append only.
type AuditKind uint8

// The kinds.
const (
	AuditKeys    AuditKind = 1 // minions' keys
	AuditMembers AuditKind = 2 // masters
	AuditSecrets AuditKind = 3
	AuditTokens  AuditKind = 4 // of external_auth
	AuditState   AuditKind = 5 // restored backups, reactors
)

// AuditKinds maps all kinds to the words for them.
var AuditKinds = map[AuditKind]string{
	AuditKeys: "keys", AuditMembers: "members", AuditSecrets: "secrets", AuditTokens: "tokens",
	AuditState: "state",
}

// Audit is one record of the audit trail. Action and subjects are taken from the command without
// any secret.
type Audit struct {
	// counts all records from 1; missing numbers were dropped to make room
	Number uint64    `msgpack:"number"`
	By     Orderer   `msgpack:"by"`
	Kind   AuditKind `msgpack:"kind"`
	Action string    `msgpack:"action"`
	// the first ids of minions or masters, owners of tokens, names of secrets
	Subjects []string `msgpack:"subjects"`
	More     int      `msgpack:"more"` // subjects that are not named
	Refused  Refusal  `msgpack:"refused"`
	Changed  bool     `msgpack:"changed"`
	// how often it occurred in succession; more than 1 only if nothing changed
	Times int       `msgpack:"times"`
	Last  time.Time `msgpack:"last"` // time of the last occurrence, UTC
}

// bytes estimates the size of a record.
func (a *Audit) bytes() int {
	n := overhead + len(a.By.Master) + len(a.By.User) + len(a.By.Eauth) + len(a.By.From) +
		len(a.By.Order)
	for _, s := range a.Subjects {
		n += len(s) + 8
	}
	return n
}

// repeats reports whether b equals a except for the time, and neither changed anything.
func (a *Audit) repeats(b *Audit) bool {
	x, y := a.By, b.By
	x.At, y.At = time.Time{}, time.Time{}
	return !a.Changed && !b.Changed && x == y && a.Kind == b.Kind && a.Action == b.Action &&
		a.Refused == b.Refused &&
		a.More == b.More && slices.Equal(a.Subjects, b.Subjects)
}

// Audited is a command together with who ordered it: the change and its record happen together or
// not at all.
type Audited struct {
	By    Orderer `msgpack:"by"`
	Entry []byte  `msgpack:"entry"` // the command, as Encode wrote it

	command Command
}

// NewAudited adds the orderer to a command. Ok is false for a command that is not audited.
func NewAudited(by Orderer, c Command) (a *Audited, ok bool, err error) {
	if kind, _, _ := auditOf(c); kind == 0 {
		return nil, false, nil
	}
	entry, err := Encode(c)
	if err != nil {
		return nil, false, err
	}
	return &Audited{By: by, Entry: entry, command: c}, true, nil
}

// Op implements Command.
func (*Audited) Op() Op { return OpAudited }

// unwrap reads the inner command.
func (c *Audited) unwrap() (err error) {
	if c.command, err = decode(c.Entry, OpAudited); err != nil {
		return fmt.Errorf("inner: %w", err)
	}
	return nil
}

func (c *Audited) apply(s *State, index uint64) Result {
	kind, action, subjects := auditOf(c.command)
	switch inner := c.command.(type) {
	case *PutMember: // each start of a member proposes it again
		if _, member := s.members[inner.Member.Node]; member {
			kind = 0
		}
	case *DropToken:
		if t, ok := s.tokens[inner.Hash]; ok {
			subjects = []string{t.Owner}
		}
	}
	r := s.fold(c.command, index)
	if kind == 0 || s.cluster.UUID == "" {
		return r
	}
	if len(r.Keys) > 0 {
		subjects = subjects[:0:0]
		for _, k := range r.Keys {
			subjects = append(subjects, k.Key.ID)
		}
	}
	s.record(c.By.clipped(), Audit{Kind: kind, Action: action, Refused: r.Refused,
		Changed: r.Changed}, subjects)
	return r
}

// record adds a record to the list of its kind. An automatic order counts only if it changed
// something, and has a separate list because a minion may have caused it.
func (s *State) record(by Orderer, a Audit, subjects []string) {
	if by.Automatic && !a.Changed {
		return
	}
	a.By, a.Last, a.Times, a.Number = by, by.At, 1, s.auditsMade()+1
	a.More = max(0, len(subjects)-maxSubjects)
	for _, subject := range subjects[:len(subjects)-a.More] {
		a.Subjects = append(a.Subjects, clip(subject))
	}
	in := auditList{a.Kind, by.Automatic}
	list := s.audits[in]
	if n := len(list); n > 0 && list[n-1].repeats(&a) {
		a.By.At, a.Times = list[n-1].By.At, list[n-1].Times+1
		list = list[: n-1 : n-1] // snapshots share the record
	}
	list = append(list, a)
	size, from := 0, len(list)
	for from > 0 && len(list)-from < keptAudits {
		if size += list[from-1].bytes(); size > keptAuditBytes && from < len(list) {
			break
		}
		from--
	}
	s.audits[in] = list[from:]
}

// auditList names a list of the trail.
type auditList struct {
	kind      AuditKind
	automatic bool
}

// auditsMade returns how many records were ever made. That works because the newest record is never
// dropped.
func (s *State) auditsMade() (n uint64) {
	for _, list := range s.audits {
		n = max(n, list[len(list)-1].Number)
	}
	return n
}

// Audits returns the audit trail, newest last.
func (s *State) Audits() []Audit {
	s.mu.RLock()
	lists := maps.Clone(s.audits) // records are never changed in place
	s.mu.RUnlock()
	return sortedAudits(lists)
}

// AuditsMade returns how many audit records were ever made, and how many of them are kept.
func (s *State) AuditsMade() (made uint64, kept int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, list := range s.audits {
		kept += len(list)
	}
	return s.auditsMade(), kept
}

func sortedAudits(lists map[auditList][]Audit) []Audit {
	out := slices.Concat(slices.Collect(maps.Values(lists))...)
	slices.SortFunc(out, func(a, b Audit) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// putAudit adds a record from a snapshot.
func (s *State) putAudit(a Audit) {
	a.By.At, a.Last = a.By.At.UTC(), a.Last.UTC()
	if len(a.Subjects) == 0 {
		a.Subjects = nil
	}
	in := auditList{a.Kind, a.By.Automatic}
	s.audits[in] = append(s.audits[in], a)
}

// auditOf returns what the trail records of a command; kind 0: nothing. The first step of a
// rotation records both steps.
func auditOf(c Command) (kind AuditKind, action string, subjects []string) {
	switch c := c.(type) {
	case *ChangeKeys:
		verb := map[KeyAction]string{AcceptKeys: "accept", RejectKeys: "reject",
			DeleteKeys: "delete"}[c.Action]
		return AuditKeys, cmp.Or(verb, "change"), c.IDs
	case *ImportKeys:
		ids := make([]string, len(c.Keys))
		for i, k := range c.Keys {
			ids[i] = k.ID
		}
		return AuditKeys, "import", ids
	case *PutMember:
		return AuditMembers, "join", []string{c.Member.ID}
	case *RemoveMember:
		return AuditMembers, "remove", []string{memberID(c.Node)}
	case *AllowMember:
		return AuditMembers, "allow", []string{c.ID}
	case *MarkMember:
		verb := map[Mark]string{
			MarkDrain: "drain", MarkUndrain: "undrain", MarkLearner: "demote", MarkVoter: "promote",
			MarkDemoted: "demote",
		}
		return AuditMembers, cmp.Or(verb[c.Mark], "mark"), []string{memberID(c.Node)}
	case *Recover:
		return AuditMembers, "recover", []string{memberID(c.Node)}
	case *SetJoinKey:
		return AuditSecrets, "rotate", []string{"cluster_secret"}
	case *StageAES:
		return AuditSecrets, "rotate", []string{"aes"}
	case *StageSession:
		return AuditSecrets, "rotate", []string{"session"}
	case *SetUserKeys:
		users := make([]string, len(c.Keys))
		for i, k := range c.Keys {
			users[i] = "key of user " + k.User
		}
		return AuditSecrets, "set", users
	case *PutToken:
		return AuditTokens, "make", []string{c.Token.Owner}
	case *DropToken:
		return AuditTokens, "delete", nil
	case *Restore:
		return AuditState, "restore", []string{"keys", "secrets", "tokens"}
	case *ChangeGit:
		verb := map[GitAction]string{PinGit: "pin", UnpinGit: "unpin", LockGit: "lock",
			UnlockGit: "unlock"}
		return AuditState, "git " + cmp.Or(verb[c.Action], "change"), []string{c.Env}
	case *ChangeReactor:
		verb := map[ReactorAction]string{AddReactor: "add", DeleteReactor: "delete",
			ReactorsOn: "on", ReactorsOff: "off"}
		return AuditState, "reactor " + cmp.Or(verb[c.Action], "change"), []string{c.Tag}
	}
	return 0, "", nil
}

// memberID returns the id in a node name.
func memberID(node string) string {
	id, _, _ := strings.Cut(node, "/")
	return id
}
