package master

import (
	"context"
	"encoding/base64"
	"errors"
	"net/netip"
	"slices"

	"clustermaster/keystore"
	"clustermaster/value"
	"clustermaster/wire"
)

// signIn answers _auth by the table of 1-channel.md, 6.2. Keys.Offer decides on the state of the
// key.
func (m *Master) signIn(ctx context.Context, env wire.Envelope, remote netip.AddrPort) ([]byte,
	error) {
	s, refusal := wire.ParseSignIn(env)
	if refusal == nil && env.Version >= 2 && !wire.KnownSignature(s.SigAlgo) {
		refusal = wire.BadSigAlgo()
	}
	// Check before anything is stored: for an unknown algorithm no reply could be made.
	if refusal == nil && !wire.KnownEncryption(s.EncAlgo) {
		refusal = wire.BadEncAlgo()
	}
	if refusal != nil {
		return m.refuse(refusal, s.ID, remote), nil
	}
	out := m.decide(ctx, s, remote)
	reply, err := m.gate.do(ctx, out.Act != "accept",
		func() ([]byte, error) { return m.decided(s, env.Version, out, remote) })
	if errors.Is(err, errBusy) {
		return m.refuse(wire.BadLoad("auth_busy"), s.ID, remote), nil
	}
	return reply, err
}

// decided reports the outcome of a sign-in and makes the reply, which takes RSA operations.
func (m *Master) decided(s wire.SignIn, version int, out keystore.Outcome,
	remote netip.AddrPort) ([]byte, error) {
	if out.Act != "" {
		m.metrics.auth.WithLabelValues(out.Act).Inc()
	}
	if out.Act == "accept" && (out.Key == nil || out.Key.Pub == nil) {
		// The stored text is no key. It stays accepted, because an operator ordered that, but
		// nothing can be sent to its minion.
		out.Ret = false
		m.refused.note("auth_not_a_key", s.ID, remote)
		return m.authReply(s, version, out.Ret)
	}
	if out.Act != "" {
		m.authEvent(s, out)
	}
	if out.Act != "accept" {
		if out.Ret != true {
			m.refused.note("auth_"+reason(out.Act), s.ID, remote)
		}
		return m.authReply(s, version, out.Ret)
	}
	m.heard.note(s.ID)
	m.signedIn.add(s.ID)
	return m.grant(s, version, out.Key)
}

// reason returns the metric label of an outcome.
func reason(act string) string {
	switch act {
	case "full", "reject", "denied", "error", "pend":
		return act
	case "":
		return "invalid_id"
	}
	return "other"
}

// decide decides what happens to an offered key. An outcome without Act fires no event.
func (m *Master) decide(ctx context.Context, s wire.SignIn,
	remote netip.AddrPort) keystore.Outcome {
	if !wire.ValidID(s.ID) {
		return keystore.Outcome{Ret: false}
	}
	auto, stub := m.autosign.decide(s.ID, s.AutosignGrains, m.now())
	if m.opts.MaxMinions > 0 {
		if count, is := m.deps.Presence.Connected(s.ID); count > m.opts.MaxMinions && !is {
			return keystore.Outcome{Act: "full", Ret: "full"}
		}
	}
	out, err := m.deps.Keys.Offer(ctx, s.ID, s.Pub, keystore.Policy{
		Open: m.opts.OpenMode, Auto: auto, MaxPending: m.opts.MaxPendingKeys,
		MaxPerSource: m.opts.MaxPendingKeysPerSource,
		Source:       source(remote.Addr()),
	})
	if err != nil {
		// A refusal would end the minion for good, so tell it to wait.
		m.refused.note("auth_undecided", s.ID, remote)
		m.log.Debug("offered key undecided", "minion", s.ID, "err", err)
		return keystore.Outcome{Ret: true}
	}
	if stub != "" && out.Act != "pend" {
		m.autosign.consume(stub)
	}
	return out
}

// source returns the address under which keys are counted, or with IPv6 its /64 network, which one
// machine may fill alone.
func source(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

func (m *Master) authReply(s wire.SignIn, version int, ret any) ([]byte, error) {
	return wire.AuthReply(m.deps.Cluster.ClusterKey(), s, version, ret)
}

// authEvent fires salt/auth.
func (m *Master) authEvent(s wire.SignIn, out keystore.Outcome) {
	if !m.opts.AuthEvents {
		return
	}
	result := out.Act == "accept" || out.Act == "pend"
	data := value.Map{{Key: "result", Value: result}, {Key: "act", Value: out.Act},
		{Key: "id", Value: s.ID}, {Key: "pub", Value: s.Pub}}
	if s.AutosignGrains != nil && slices.Contains(m.opts.AuthEventsAutosignGrains, out.Act) {
		data = append(data, value.Pair{Key: "autosign_grains", Value: s.AutosignGrains})
	}
	m.deps.Bus.Fire("salt/auth", data)
}

// grant makes the accepting reply.
func (m *Master) grant(s wire.SignIn, version int, key *keystore.AcceptedKey) ([]byte, error) {
	shared := m.keys.common()
	secrets := shared.of
	master := m.deps.Cluster.ClusterKey()
	if len(secrets.AES) == 0 || len(secrets.Session) == 0 {
		return wire.NotReady().Reply, nil
	}
	signature, err := shared.signature(master)
	if err != nil {
		return nil, err
	}
	g := wire.Grant{
		Master: master, Minion: key.Pub, PublishPort: m.opts.PublishPort, AES: secrets.AES[0].Key,
		Session:   wire.DeriveSession(secrets.Session[0].Secret, s.ID, key.PubSum, key.Index),
		Signature: signature,
	}
	switch {
	case m.opts.PubkeySignature != "":
		g.PubSig = m.opts.PubkeySignature
	case m.opts.MasterSignKey != nil:
		// The minion chose the algorithm. A request of version 0 or 1 has none.
		sig, err := m.opts.MasterSignKey.Sign(s.SigAlgo, []byte(master.Public().Text()))
		if err != nil {
			return nil, err
		}
		g.PubSig = base64.StdEncoding.EncodeToString(sig)
	}
	return g.Reply(s, version)
}
