package fsm

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Limit is the bound of one list, map or text in the state, or of a part of a command that is
// stored there.
type Limit struct {
	Of   string // field, as Type.Field; with [] each element of a list of texts
	Most int    // elements of a list or map, bytes of a text
	What string // what is counted or measured, in an operator's words
	Then Beyond
	Do   string // the remedy; "" if there is none but another order
}

// Beyond says what happens beyond the bound.
type Beyond string

// What happens beyond a bound.
const (
	BeyondRefused  Beyond = "refused"              // the command changes nothing
	BeyondOldest   Beyond = "the oldest gives way" // the addition drops the oldest
	BeyondClipped  Beyond = "cut"                  // the text is cut when it is stored
	BeyondCaller   Beyond = "as its source"        // made from something with a bound of its own
	BeyondExpiring Beyond = "refused, expired ones make room"
)

// limitsLevel is the level from which on commands are refused for exceeding a bound. Release 0.1.0
// has no such refusals, so below this level members would differ.
const limitsLevel = 2

// The bounds of texts that occur in several types.
const (
	maxID      = 255 // as of a file name, because keys of minions are files, too
	maxNodeLen = 512 // id and incarnation
	maxSecret  = 1 << 10
	maxPEM     = 64 << 10
)

// The bounds of collections that have no constant elsewhere.
const (
	maxMembers   = 255
	maxBars      = 1024
	maxKeys      = 2_000_000
	maxDenied    = 100_000 // of all ids together
	maxTokens    = 100_000
	maxParts     = 65_536 // of a restore; each is about 32 KiB
	maxRootsTree = 2
)

// Limits lists all bounds of the replicated state. A test walks the types and fails for a field
// without one.
var Limits = []Limit{
	// The collections of the state.
	{"State.members", maxMembers, "masters in the cluster", BeyondRefused,
		"remove one with salt-run cluster.remove"},
	{"State.bars", maxBars, "removed masters that are kept out", BeyondRefused,
		"allow those that are gone for good with salt-run cluster.allow"},
	{"State.keys", maxKeys, "accepted, pending and rejected keys together", BeyondRefused,
		"delete some with salt-key -d"},
	{"State.denied", maxDenied, "denied keys of all minions", BeyondRefused,
		"delete some with salt-key -d"},
	{"State.done", keptResults, "results kept for repeats of a command", BeyondOldest, ""},
	{"State.roots", maxRootsTree, "trees of roots", BeyondRefused, ""},
	{"State.parts", maxParts, "parts of a restore under way", BeyondRefused, ""},
	{"State.userKeys", maxUserKeys, "users of the masters' machines with a key", BeyondRefused, ""},
	{"State.scheduled", maxScheduled, "entries of the schedule", BeyondRefused,
		"take some out of the option schedule"},
	{"State.tokens", maxTokens, "tokens of external_auth", BeyondExpiring,
		"delete some with salt-run auth.del_token, or wait until some expire"},
	{"State.audits", 2 * auditKinds, "lists of the audit trail", BeyondCaller, ""},
	{"State.bySPKI", maxMembers, "members by node key", BeyondCaller, ""},
	{"State.offered", maxKeys, "sources of pending keys", BeyondCaller, ""},
	{"State.release", maxID, "bytes in the name of a release", BeyondRefused, ""},
	{"State.git", maxGitMirrors, "git repositories", BeyondRefused,
		"use remotes that it had before, or restore a backup on a new cluster"},
	{"audits.list", keptAudits, "records in one list of the audit trail", BeyondOldest, ""},
	{"denied.list", maxDeniedPerID, "denied keys of one minion", BeyondOldest, ""},
	{"epochs.old", maxOld, "former keys of one kind", BeyondOldest, ""},

	// Contents of records.
	{"Cluster.UUID", maxID, "bytes in the cluster's uuid", BeyondRefused, ""},
	{"Cluster.ClusterID", maxID, "bytes in cluster_id", BeyondRefused, ""},
	{"Cluster.ClusterKey", maxPEM, "bytes in the cluster's RSA key", BeyondRefused, ""},
	{"Cluster.JoinKey", maxSecret, "bytes in the join key", BeyondRefused, ""},
	{"Member.Node", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"Member.ID", maxID, "bytes in the id of a master", BeyondRefused, ""},
	{"Member.Incarnation", maxID, "bytes in an incarnation", BeyondRefused, ""},
	{"Member.Addr", maxNodeLen, "bytes in an address", BeyondRefused, ""},
	{"Member.Version", maxID, "bytes in the name of a release", BeyondRefused, ""},
	{"Member.Pub", maxPEM, "bytes in a node key", BeyondRefused, ""},
	{"Bar.ID", maxID, "bytes in the id of a master", BeyondRefused, ""},
	{"Bar.JoinKey", maxSecret, "bytes in the join key", BeyondRefused, ""},
	{"Key.ID", maxID, "bytes in the id of a minion", BeyondRefused, ""},
	{"Key.Pub", maxPEM, "bytes in a minion's key", BeyondRefused, ""},
	{"Key.Source", maxID, "bytes in an address", BeyondRefused, ""},
	{"Denied.Pub", maxPEM, "bytes in a minion's key", BeyondRefused, ""},
	{"DeniedOf.ID", maxID, "bytes in the id of a minion", BeyondRefused, ""},
	{"DeniedOf.Keys", maxDeniedPerID, "denied keys of one minion", BeyondRefused, ""},
	{"Epoch.Secret", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"Ring.Members", maxMembers, "masters in the ring", BeyondRefused, ""},
	{"Ring.Members[]", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"RootsHead.Source", maxID, "bytes in the id of a master", BeyondRefused, ""},
	{"doneOnce.Token", tokenSize, "bytes in a token of a repeat", BeyondRefused, ""},
	{"Result.Refused", maxID, "bytes in a refusal", BeyondCaller, ""},
	{"Result.Act", maxID, "bytes in an outcome", BeyondCaller, ""},
	{"Result.Keys", keptKeys, "keys in the results kept for repeats, or those of one command",
		BeyondOldest, ""},
	{"RestorePart.Token", maxID, "bytes in the name of a restore", BeyondRefused, ""},
	{"RestorePart.Keys", maxKeys, "accepted, pending and rejected keys together", BeyondRefused,
		"delete some in the cluster that is backed up"},
	{"RestorePart.Denied", maxDenied, "minions with denied keys", BeyondRefused,
		"delete some in the cluster that is backed up"},
	{"RestorePart.Bars", maxBars, "removed masters that are kept out", BeyondRefused,
		"allow some with salt-run cluster.allow"},
	{"RestorePart.Tokens", maxTokens, "tokens of external_auth", BeyondRefused,
		"delete some with salt-run auth.del_token"},
	{"State.userKeys[]", maxUserKeyLen, "bytes in a user's name or key", BeyondRefused, ""},
	{"Reactors.Added", MaxReactors, "reactors that were added", BeyondRefused,
		"write them into the option reactor"},
	{"Reactors.Deleted", MaxReactors, "reactors that were deleted", BeyondRefused,
		"remove some from the option reactor"},
	{"Reactors.Deleted[]", MaxReactorTag, "bytes in the tag of a reactor", BeyondRefused, ""},
	{"Reactor.Tag", MaxReactorTag, "bytes in the tag of a reactor", BeyondRefused, ""},
	{"Reactor.Files", MaxReactorFiles, "files of one reactor", BeyondRefused, ""},
	{"Reactor.Files[]", MaxReactorPath, "bytes in the path of a reactor", BeyondRefused, ""},
	{"Scheduled.Name", maxScheduledName, "bytes in the name of an entry of the schedule",
		BeyondRefused, ""},
	{"Scheduled.Runs", maxScheduledRuns, "runs of one entry of the schedule at a time",
		BeyondRefused, ""},
	{"Run.JID", maxScheduledName, "bytes in a job id", BeyondRefused, ""},
	{"Run.Node", maxScheduledName, "bytes in the name of a node", BeyondRefused, ""},
	{"Token.Owner", maxTokenOwner, "bytes in the owner of a token", BeyondRefused, ""},
	{"Token.Data", maxTokenData, "bytes in what a token stands for", BeyondRefused, ""},
	{"GitMirror.Key", gitKeySize, "bytes in the name of a mirror", BeyondRefused, ""},
	{"GitMirror.Refs", maxGitRefs, "branches and tags of one git repository", BeyondRefused,
		"narrow the option refspecs"},
	{"GitMirror.Pins", maxGitPins, "pinned environments of one git repository", BeyondRefused,
		"unpin some with salt-run cluster.git_unpin"},
	{"GitRef.Name", maxGitName, "bytes in the name of a branch or tag", BeyondRefused, ""},
	{"GitRef.Commit", maxCommit, "bytes in the id of a commit", BeyondRefused, ""},
	{"GitRef.Before", maxGitBefore, "former commits of one branch or tag", BeyondOldest, ""},
	{"GitRef.Before[]", maxCommit, "bytes in the id of a commit", BeyondRefused, ""},
	{"GitPin.Env", maxGitName, "bytes in the name of an environment", BeyondRefused, ""},
	{"GitPin.Commit", maxCommit, "bytes in the id of a commit", BeyondRefused, ""},
	{"GitPin.By", maxGitName, "bytes in the name of who pinned", BeyondRefused, ""},
	{"Audit.Action", maxAuditText, "bytes in a text of the audit trail", BeyondCaller, ""},
	{"Audit.Subjects", maxSubjects, "subjects named in one record of the audit trail",
		BeyondClipped, ""},
	{"Audit.Subjects[]", maxAuditText, "bytes in a text of the audit trail", BeyondClipped, ""},
	{"Audit.Refused", maxAuditText, "bytes in a refusal", BeyondCaller, ""},
	{"Orderer.Master", maxAuditText, "bytes in a text of the audit trail", BeyondClipped, ""},
	{"Orderer.User", maxAuditText, "bytes in a text of the audit trail", BeyondClipped, ""},
	{"Orderer.Eauth", maxAuditText, "bytes in a text of the audit trail", BeyondClipped, ""},
	{"Orderer.From", maxAuditText, "bytes in a text of the audit trail", BeyondClipped, ""},
	{"Orderer.Order", maxAuditText, "bytes in a text of the audit trail", BeyondClipped, ""},

	// Contents of commands.
	{"Found.AES", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"Found.Session", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"PutMember.Replace", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"RemoveMember.Node", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"AllowMember.ID", maxID, "bytes in the id of a master", BeyondRefused, ""},
	{"MarkMember.Node", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"OfferKey.ID", maxID, "bytes in the id of a minion", BeyondRefused, ""},
	{"OfferKey.Pub", maxPEM, "bytes in a minion's key", BeyondRefused, ""},
	{"OfferKey.Source", maxID, "bytes in an address", BeyondRefused, ""},
	{"ChangeKeys.IDs", maxKeys, "keys in one order", BeyondRefused, ""},
	{"ChangeKeys.IDs[]", maxEntry, "bytes in one command", BeyondCaller, ""},
	{"ImportKeys.Keys", maxKeys, "keys in one order", BeyondRefused, ""},
	{"StageAES.Key", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"StageSession.Secret", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"SetRing.Members", maxMembers, "masters in the ring", BeyondRefused, ""},
	{"SetRing.Members[]", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"SetJoinKey.JoinKey", maxSecret, "bytes in the join key", BeyondRefused, ""},
	{"Saved.ClusterKey", maxPEM, "bytes in the cluster's RSA key", BeyondRefused, ""},
	{"Saved.AES", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"Saved.Session", maxSecret, "bytes in a secret", BeyondRefused, ""},
	{"Saved.Keys", maxKeys, "accepted, pending and rejected keys together", BeyondRefused,
		"delete some in the cluster that is backed up"},
	{"Saved.Denied", maxDenied, "minions with denied keys", BeyondRefused,
		"delete some in the cluster that is backed up"},
	{"Saved.Denied{}", maxID, "bytes in the id of a minion", BeyondRefused, ""},
	{"Saved.Denied[]", maxDeniedPerID, "denied keys of one minion", BeyondRefused, ""},
	{"Saved.Bars", maxBars, "removed masters that are kept out", BeyondRefused,
		"allow some with salt-run cluster.allow"},
	{"Saved.Scheduled", maxScheduled, "entries of the schedule", BeyondRefused, ""},
	{"Saved.Tokens", maxTokens, "tokens of external_auth", BeyondRefused,
		"delete some with salt-run auth.del_token"},
	{"Restore.Token", maxID, "bytes in the name of a restore", BeyondRefused, ""},
	{"Recover.Node", maxNodeLen, "bytes in the name of a node", BeyondRefused, ""},
	{"Recover.UUID", maxID, "bytes in the cluster's uuid", BeyondRefused, ""},
	{"Once.Token", tokenSize, "bytes in a token of a repeat", BeyondRefused, ""},
	{"Once.Entry", maxEntry, "bytes in one command", BeyondRefused, ""},
	{"Audited.Entry", maxEntry, "bytes in one command", BeyondRefused, ""},
	{"SetUserKeys.Keys", maxUserKeys, "users of the masters' machines with a key",
		BeyondRefused, ""},
	{"UserKey.User", maxUserName, "bytes in the name of a user", BeyondRefused, ""},
	{"UserKey.Key", maxUserKeyLen, "bytes in a user's key", BeyondRefused, ""},
	{"ChangeReactor.Tag", MaxReactorTag, "bytes in the tag of a reactor", BeyondRefused, ""},
	{"ChangeReactor.Files", MaxReactorFiles, "files of one reactor", BeyondRefused, ""},
	{"ChangeReactor.Files[]", MaxReactorPath, "bytes in the path of a reactor", BeyondRefused, ""},
	{"ClaimRun.JID", maxScheduledName, "bytes in a job id", BeyondRefused, ""},
	{"ClaimRun.Node", maxScheduledName, "bytes in the name of a node", BeyondRefused, ""},
	{"ClearRuns.JIDs", maxScheduled * maxScheduledRuns, "runs of the schedule in one order",
		BeyondRefused, ""},
	{"ClearRuns.JIDs[]", maxScheduledName, "bytes in a job id", BeyondRefused, ""},
	{"ClearRuns.Node", maxScheduledName, "bytes in the name of a node", BeyondRefused, ""},
	{"ClearRuns.Forget", maxScheduled, "entries of the schedule in one order", BeyondRefused, ""},
	{"ClearRuns.Forget[]", maxScheduledName, "bytes in the name of an entry of the schedule",
		BeyondRefused, ""},
	{"SetGitRefs.Key", gitKeySize, "bytes in the name of a mirror", BeyondRefused, ""},
	{"SetGitRefs.Put", maxGitRefs, "branches and tags of one git repository", BeyondRefused,
		"narrow the option refspecs"},
	{"SetGitRefs.Drop", maxGitRefs, "branches and tags of one git repository", BeyondRefused,
		"narrow the option refspecs"},
	{"SetGitRefs.Drop[]", maxGitName, "bytes in the name of a branch or tag", BeyondRefused, ""},
	{"ChangeGit.Key", gitKeySize, "bytes in the name of a mirror", BeyondRefused, ""},
	{"ChangeGit.Env", maxGitName, "bytes in the name of an environment", BeyondRefused, ""},
	{"ChangeGit.Commit", maxCommit, "bytes in the id of a commit", BeyondRefused, ""},
	{"ChangeGit.By", maxGitName, "bytes in the name of who pinned", BeyondRefused, ""},
	{"SetLevel.Release", maxID, "bytes in the name of a release", BeyondRefused, ""},
	{"AdoptCluster.ClusterID", maxID, "bytes in cluster_id", BeyondRefused, ""},
	{"AdoptCluster.JoinKey", maxSecret, "bytes in the join key", BeyondRefused, ""},
}

// auditKinds is how many kinds of records the audit trail has.
const auditKinds = 5

// maxEntry is the length of the longest log entry that a master proposes, in bytes.
const maxEntry = 4 << 20

var limitOf = func() map[string]Limit {
	out := make(map[string]Limit, len(Limits))
	for _, l := range Limits {
		out[l.Of] = l
	}
	return out
}()

const limitRefusal = "limit "

// Limit returns the bound that a refusal names; false if it names none.
func (r Refusal) Limit() (Limit, bool) {
	of, ok := strings.CutPrefix(string(r), limitRefusal)
	if !ok {
		return Limit{}, false
	}
	l, known := limitOf[of]
	return l, known
}

// String says why, in an operator's words if a bound is the reason.
func (r Refusal) String() string {
	l, ok := r.Limit()
	if !ok {
		return string(r)
	}
	text := fmt.Sprintf("%d %s are as many as may be; nothing was changed", l.Most, l.What)
	if l.Do != "" {
		text += "; " + l.Do
	}
	return text
}

// TooLong refuses a command with a text or list beyond its bound; "" if there is none. It does not
// depend on the state.
func TooLong(c Command) Refusal {
	switch c := c.(type) {
	case *Once:
		return TooLong(c.command)
	case *Audited:
		return TooLong(c.command)
	}
	if of := tooLong(reflect.ValueOf(c), ""); of != "" {
		return limitRefusal + Refusal(of)
	}
	return ""
}

// measured remembers by type whether a value of it can be too long. Most types in a record can't.
var measured sync.Map // reflect.Type to bool

// tooLong names the first field in v that exceeds its bound. Of is the name of v, if v is a text,
// list or map.
func tooLong(v reflect.Value, of string) string {
	if !v.IsValid() || !mayBeLong(v.Type()) {
		return ""
	}
	over := func(of string, n int) bool {
		l, known := limitOf[of]
		return known && l.Then != BeyondClipped && n > l.Most
	}
	switch v.Kind() {
	case reflect.Pointer:
		return tooLong(v.Elem(), of)
	case reflect.String:
		if over(of, v.Len()) {
			return of
		}
	case reflect.Slice:
		if over(of, v.Len()) {
			return of
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return ""
		}
		for i := range v.Len() {
			if long := tooLong(v.Index(i), of+"[]"); long != "" {
				return long
			}
		}
	case reflect.Map:
		if over(of, v.Len()) {
			return of
		}
		for it := v.MapRange(); it.Next(); {
			if it.Key().Kind() == reflect.String && over(of+"{}", it.Key().Len()) {
				return of + "{}"
			}
			if long := tooLong(it.Value(), of+"[]"); long != "" {
				return long
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if long := tooLong(v.Field(i), v.Type().Name()+"."+f.Name); long != "" {
				return long
			}
		}
	}
	return ""
}

func mayBeLong(t reflect.Type) bool {
	if known, ok := measured.Load(t); ok {
		return known.(bool)
	}
	may := false
	switch t.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		may = true
	case reflect.Pointer:
		may = mayBeLong(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			may = may || t.Field(i).IsExported() && mayBeLong(t.Field(i).Type)
		}
	}
	measured.Store(t, may)
	return may
}

// most returns the bound of a collection.
func (s *State) most(of string) int {
	if n, ok := s.lowered[of]; ok {
		return n
	}
	return limitOf[of].Most
}

func (s *State) limited() bool { return s.level >= limitsLevel }

// fold applies a command unless it would exceed a bound.
func (s *State) fold(c Command, index uint64) Result {
	switch c.(type) {
	case *Once, *Audited: // they fold the command that they hold
		return c.apply(s, index)
	}
	if !s.limited() {
		return c.apply(s, index)
	}
	refused := TooLong(c)
	if refused == "" {
		refused = s.exceeds(c)
	}
	if _, offers := c.(*OfferKey); offers && refused == limitRefusal+"State.keys" {
		return Result{Act: "full"}
	}
	if refused != "" {
		return Result{Refused: refused}
	}
	return c.apply(s, index)
}

// beyond refuses because of a bound. Below limitsLevel the refusal doesn't name the bound.
func (s *State) beyond(of string) Refusal {
	if !s.limited() {
		return RefusedFull
	}
	return limitRefusal + Refusal(of)
}

// exceeds refuses a command that would take a collection beyond its bound; "" if none would be.
// Commands that must look at the state to know whether they add something check in their apply.
func (s *State) exceeds(c Command) Refusal {
	over := func(of string, have, more int) Refusal {
		if more > 0 && have+more > s.most(of) {
			return limitRefusal + Refusal(of)
		}
		return ""
	}
	switch c := c.(type) {
	case *PutMember:
		_, known := s.members[c.Member.Node]
		old, replaced := s.members[c.Replace]
		if !known && !(replaced && old.ID == c.Member.ID) {
			return over("State.members", len(s.members), 1)
		}
	case *RemoveMember:
		if m, ok := s.members[c.Node]; ok && c.Bar {
			if _, barred := s.bars[m.ID]; !barred {
				return over("State.bars", len(s.bars), 1)
			}
		}
	case *OfferKey:
		if _, known := s.keys[c.ID]; !known {
			return over("State.keys", len(s.keys), 1)
		}
	case *ChangeKeys:
		return over("State.keys", len(s.keys), s.undenied(c))
	case *ImportKeys:
		added, denied := map[string]bool{}, 0
		for _, k := range c.Keys {
			_, known := s.keys[k.ID]
			switch {
			case k.State == KeyDenied:
				if !slices.ContainsFunc(s.denied[k.ID],
					func(d Denied) bool { return d.Pub == k.Pub }) {
					denied++
				}
			case !known:
				added[k.ID] = true
			}
		}
		if r := over("State.keys", len(s.keys), len(added)); r != "" {
			return r
		}
		return over("State.denied", s.deniedN, denied)
	case *RestorePart:
		laid := s.parts
		if len(laid) == 0 || laid[0].Token != c.Token {
			laid = nil
		}
		if r := over("State.parts", len(laid), 1); r != "" {
			return r
		}
		return s.tooMuch(laid, c)
	case *Restore:
		if n := len(c.Saved.Reactors.Added) +
			len(c.Saved.Reactors.Deleted); n > s.most("Reactors.Added") {
			return limitRefusal + "Reactors.Added"
		}
		laid := s.parts[:min(c.Parts, len(s.parts))]
		part := c.Saved.part()
		if r := s.tooMuch(laid, part); r != "" {
			return r
		}
		bars := map[string]bool{}
		for i := range laid {
			for _, b := range laid[i].Bars {
				bars[b.ID] = true
			}
		}
		for _, b := range part.Bars {
			bars[b.ID] = true
		}
		for id := range s.bars {
			delete(bars, id)
		}
		return over("State.bars", len(s.bars), len(bars))
	case *SetUserKeys:
		added := map[string]bool{}
		for _, k := range c.Keys {
			if _, has := s.userKeys[k.User]; !has {
				added[k.User] = true
			}
		}
		return over("State.userKeys", len(s.userKeys), len(added))
	}
	return ""
}

// undenied counts the ids without a key that get one of their denied keys by c.
func (s *State) undenied(c *ChangeKeys) int {
	if c.Action == DeleteKeys || !c.From.Has(KeyDenied) {
		return 0
	}
	added := map[string]bool{}
	for _, id := range c.IDs {
		if _, known := s.keys[id]; !known && len(s.denied[id]) > 0 {
			added[id] = true
		}
	}
	return len(added)
}

// tooMuch refuses a backup whose lists are too long together, in however many parts they come.
func (s *State) tooMuch(laid []RestorePart, more *RestorePart) Refusal {
	keys, denied, bars, tokens := 0, 0, 0, 0
	add := func(p *RestorePart) {
		keys, bars, tokens = keys+len(p.Keys), bars+len(p.Bars), tokens+len(p.Tokens)
		for _, d := range p.Denied {
			denied += len(d.Keys)
		}
	}
	for i := range laid {
		add(&laid[i])
	}
	add(more)
	for _, of := range []struct {
		limit string
		n     int
	}{{"State.keys", keys}, {"State.denied", denied}, {"State.bars", bars}, {"State.tokens",
		tokens}} {
		if of.n > s.most(of.limit) {
			return limitRefusal + Refusal(of.limit)
		}
	}
	return ""
}

// KeysFull reports whether the bound on keys is reached.
func (s *State) KeysFull() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.limited() && len(s.keys) >= s.most("State.keys")
}
