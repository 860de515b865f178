package keystore

import (
	"context"
	"fmt"
	"time"

	"clustermaster/cluster/fsm"
)

// offerTimeout bounds the time of an answer to _auth: a minion gives up after 5 s.
const offerTimeout = 3500 * time.Millisecond

// acceptTimeout bounds how long a minion that the options accept waits until every master knows its
// key.
const acceptTimeout = time.Second

// Auto is what the options say about a key that no operator has decided on.
type Auto = fsm.Auto

// The decisions of the options: auto_accept and autosign, autoreject.
const (
	AutoNone   = fsm.AutoNone
	AutoAccept = fsm.AutoAccept
	AutoReject = fsm.AutoReject
)

// Policy is what the options say about an offered key.
type Policy struct {
	Open         bool   // open_mode
	Auto         Auto   // for this id and these grains
	MaxPending   int    // max_pending_keys: bound on all unvetted keys; 0: none
	MaxPerSource int    // max_pending_keys_per_source: bound on those from one Source; 0: none
	Source       string // address of the minion, or its network
}

// Outcome is the answer to an offered key.
type Outcome struct {
	Act    string       // accept, pend, reject, denied, full or error: act of the event salt/auth
	Result bool         // result of the event
	Ret    any          // ret of the reply unless accepted: true, false or "full"
	Key    *AcceptedKey // when accepted
	// The cluster was unreachable or did not answer in time. The minion is told to wait. What was
	// proposed may still take effect.
	Undecided bool
}

func outcome(act string) Outcome {
	switch act {
	case "accept":
		return Outcome{Act: act, Result: true, Ret: true}
	case "pend":
		return Outcome{Act: act, Result: true, Ret: true}
	case "full":
		return Outcome{Act: act, Ret: "full"}
	default:
		return Outcome{Act: act, Ret: false}
	}
}

// Offer decides on the key that a minion shows when it signs in (rows 3 to 10 of the order of
// checks in 1-channel.md 6.2). Pub is the cleaned PEM text.
//
// A known key in an unchanged state costs no message and no write, nor does a new key when the
// bound on unvetted keys is reached. Offer checks with the leader before it sends a refusal,
// because a stock minion exits for good on one. Without a quorum it tells the minion to wait, as if
// pending, and stores nothing. A refused key that is not stored costs no write either. The error is
// always nil; the signature has it for stores that can fail in other ways.
func (s *Store) Offer(ctx context.Context, id, pub string, p Policy) (Outcome, error) {
	out := s.offer(ctx, id, pub, p)
	s.m.offers.WithLabelValues(out.Act).Inc()
	return out, nil
}

func (s *Store) offer(ctx context.Context, id, pub string, p Policy) Outcome {
	if p.Open && pub == "" {
		return outcome("error")
	}
	if out, sure := s.known(id, pub, p); sure {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	if err := s.node.ReadIndex(ctx); err != nil {
		return s.undecided(id, err)
	}
	if out, settled := s.settled(id, pub, p); settled {
		return out
	}
	r, index, err := s.node.Propose(ctx, &fsm.OfferKey{
		ID: id, Pub: pub, Open: p.Open, Auto: p.Auto, MaxPending: p.MaxPending,
		MaxPerSource: p.MaxPerSource,
		Source:       p.Source, At: time.Now().UTC(),
	})
	if err == nil && r.Refused != "" {
		err = fmt.Errorf("refused: %s", r.Refused)
	}
	if err != nil {
		return s.undecided(id, err)
	}
	if r.Changed && r.Act == "accept" {
		// The minion's next request may reach any master, and one that doesn't know the key yet
		// would refuse it.
		everywhere, cancel := context.WithTimeout(ctx, acceptTimeout)
		defer cancel()
		s.node.ConfirmEverywhere(everywhere, index)
	}
	if r.Changed && r.Act == "pend" {
		s.log.Info("new key waits for acceptance; see salt-key -a", "minion", id, "addr", p.Source)
	}
	return s.finish(id, r.Act)
}

// known answers from the local state if no confirmation is needed: with neither a refusal nor a
// write.
func (s *Store) known(id, pub string, p Policy) (Outcome, bool) {
	k, ok := s.node.State().Key(id)
	switch {
	case !ok && s.node.State().KeysFull():
		s.m.unkept.WithLabelValues(string(fsm.BoundKeys)).Inc()
		return outcome("full"), true
	case !ok && !p.Open && p.Auto != AutoAccept:
		if bound := s.node.State().Full(p.MaxPending, p.MaxPerSource, p.Source); bound != "" {
			s.m.unkept.WithLabelValues(string(bound)).Inc()
			return outcome("full"), true // the minion tries again
		}
	case !ok:
	case k.State == fsm.KeyAccepted && k.Pub == pub:
		if a, ok := s.Accepted(id); ok && a.Pub != nil {
			o := outcome("accept")
			o.Key = a
			return o, true
		}
	case k.State == fsm.KeyPending && k.Pub == pub && !p.Open && p.Auto == AutoNone:
		return outcome("pend"), true
	}
	return Outcome{}, false
}

// settled answers from a state that was just confirmed if nothing changes: with the recorded
// refusals.
func (s *Store) settled(id, pub string, p Policy) (Outcome, bool) {
	if out, ok := s.known(id, pub, p); ok {
		return out, true
	}
	k, ok := s.node.State().Key(id)
	switch {
	case !ok || p.Open:
	case k.State == fsm.KeyRejected:
		return outcome("reject"), true
	case k.State == fsm.KeyAccepted && k.Pub == pub:
		return s.finish(id, "accept"), true
	case k.State == fsm.KeyAccepted, k.State == fsm.KeyPending && k.Pub != pub &&
		p.Auto != AutoReject:
		if s.node.State().IsDenied(id, pub) {
			return outcome("denied"), true
		}
		if bound := s.node.State().DeniedFull(id, p.MaxPending); bound != "" {
			s.m.unkept.WithLabelValues(string(bound)).Inc()
			return outcome("denied"), true
		}
	}
	return Outcome{}, false
}

// finish completes an acceptance. In row 10, an accepted text that is no key, the minion is refused
// but the key stays accepted.
func (s *Store) finish(id, act string) Outcome {
	o := outcome(act)
	if act != "accept" {
		return o
	}
	a, ok := s.Accepted(id)
	if !ok { // deleted meanwhile
		return outcome("pend")
	}
	if a.Pub == nil {
		return Outcome{Act: "error", Ret: false}
	}
	o.Key = a
	return o
}

// undecided tells the minion to wait if this master can't decide: after a refusal the minion would
// exit for good.
func (s *Store) undecided(id string, err error) Outcome {
	s.m.undecided.Inc()
	s.log.Debug("offered key undecided", "minion", id, "err", err)
	o := outcome("pend")
	o.Undecided = true
	return o
}
